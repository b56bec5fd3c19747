// Prints what a proto file declares, as a header of common/: the table of the fields of JobSpec, or
// the numbers of StepRecord. Runs while the build is made.

#include <iostream>
#include <string>

#include "proto/declared_numbers.h"
#include "proto/declared_rows.h"
#include "trainyard/v1/job_spec.pb.h"
#include "trainyard/v1/step.pb.h"

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  bool good = false;
  if (what == "fields") {
    good = trainyard::PrintRows(*trainyard::v1::JobSpec::descriptor(), "", std::cout, std::cerr);
  } else if (what == "numbers") {
    good = trainyard::PrintNumbers(*trainyard::v1::StepRecord::descriptor(), std::cout, std::cerr);
  } else {
    std::cerr << "wanted `fields` or `numbers`, found `" << what << "`\n";
  }
  return good && std::cout.flush() ? 0 : 1;
}
