// Prints the table of the fields of JobSpec. Runs while the build is made.

#include <iostream>

#include "proto/declared_rows.h"
#include "trainyard/v1/job_spec.pb.h"

int main() {
  const bool good =
      trainyard::PrintRows(*trainyard::v1::JobSpec::descriptor(), "", std::cout, std::cerr);
  return good && std::cout.flush() ? 0 : 1;
}
