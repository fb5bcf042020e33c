#ifndef HAWSER_OBSERVE_METRICS_TEXT_H_
#define HAWSER_OBSERVE_METRICS_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hawser::observe {

// What is wrong with a text in Prometheus's text format, version 0.0.4 (prometheus.io, "Exposition formats"):
// "line 3 is no metric: ...", with the beginning of that line, escaped. Empty: nothing. It finds what makes
// Prometheus drop a scrape, with all other metrics in it, such as a quote in the value of a label that is not
// escaped, and what the format forbids though Prometheus takes it, such as a line end there. It does not find
// what Prometheus only warns of, such as a metric that is there twice.
// `text`: UTF-8. The last line need not end. Thread: any.
std::string WhyNoMetrics(absl::string_view text);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_METRICS_TEXT_H_
