#ifndef HAWSER_TOOLS_DOCTOR_VERBS_LOADER_H_
#define HAWSER_TOOLS_DOCTOR_VERBS_LOADER_H_

#include <map>
#include <string>
#include <vector>

#include "hawser/tools/doctor/system.h"

namespace hawser::doctor {

// The libraries of this machine, by dlopen(). They stay loaded: providers do not like to be unloaded.
class VerbsLoader final : public Loader {
 public:
  absl::Status Load(const std::string& library) override;
  absl::StatusOr<std::vector<VerbsDevice>> OpenDevices() override;
  absl::StatusOr<std::vector<std::string>> ListDevices() override;

 private:
  std::map<std::string, void*> loaded_;
};

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_VERBS_LOADER_H_
