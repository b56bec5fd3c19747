// Prints the table of the fields of JobSpec, or with the word `numbers` the numbers of StepRecord.
// Runs while the build is made.

#include <iostream>
#include <string>

#include "proto/declared_rows.h"
#include "trainyard/v1/job_spec.pb.h"
#include "trainyard/v1/step.pb.h"

int main(int argc, char** argv) {
  const bool good =
      argc > 1 && std::string(argv[1]) == "numbers"
          ? trainyard::PrintNumbers(*trainyard::v1::StepRecord::descriptor(), std::cout, std::cerr)
          : trainyard::PrintRows(*trainyard::v1::JobSpec::descriptor(), "", std::cout, std::cerr);
  return good && std::cout.flush() ? 0 : 1;
}
