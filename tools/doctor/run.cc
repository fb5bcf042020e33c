#include "hawser/tools/doctor/run.h"

#include <iostream>
#include <vector>

#include "hawser/tools/doctor/checks.h"
#include "hawser/tools/doctor/target.h"
#include "hawser/tools/doctor/verbs_loader.h"

namespace hawser::doctor {
namespace {

class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}

  void Print(const Findings& findings) {
    for (const Finding& finding : findings) {
      std::cout << (json_ ? ToJson(finding) : ToText(finding)) << '\n';
      has_problem_ = has_problem_ || finding.level == Level::kProblem;
    }
    std::cout.flush();  // What comes next may take its time.
  }

  bool has_problem() const { return has_problem_; }

 private:
  const bool json_;
  bool has_problem_ = false;
};

}  // namespace

bool Run(const std::optional<transport::Uri>& target, absl::Duration timeout, bool json) {
  VerbsLoader loader;
  const System system("", loader);
  const std::vector<Device> devices = ReadDevices(system);
  Printer printer(json);
  const bool rdma_wanted = target.has_value() && target->scheme == transport::kRdmaScheme;
  printer.Print(Examine(system, devices, rdma_wanted));
  if (target.has_value()) printer.Print(CheckTarget(*target, timeout, devices));
  return !printer.has_problem();
}

}  // namespace hawser::doctor
