// What gRPC says goes to the controller's log. gRPC quotes what peers sent, peers without a
// credential among them, and would write the bytes to standard error as they are, a line for each.

#pragma once

namespace trainyard::controller {

// From now on, gRPC's errors are events `grpc` of the log: escaped, cut to 300 bytes, and at most
// ten a second. An event says how many were left out before it.
void LogWhatGrpcSays();

}  // namespace trainyard::controller
