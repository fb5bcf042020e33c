#ifndef HAWSER_OBSERVE_PROMETHEUS_H_
#define HAWSER_OBSERVE_PROMETHEUS_H_

#include <string>

#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The metrics of a snapshot in Prometheus's text format, version 0.0.4. docs/operating.md says what each one
// means. Labels are names of the process's own program and machine (methods, pollers, pools, reasons) and the
// targets that it dials: nothing that a peer chose is among them but names of methods that a program calls by
// a schema that it has from a peer (DynamicCall).
// Thread: any.
std::string ToPrometheus(wire::Snapshot::Reader snapshot);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_PROMETHEUS_H_
