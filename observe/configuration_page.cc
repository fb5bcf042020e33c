// The options of the server, as it has them.
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/observe/html.h"
#include "hawser/observe/page.h"

namespace hawser::observe {

std::string ConfigurationBody(wire::Snapshot::Reader snapshot, const History&, size_t) {
  Table table({{"option"}, {"value", Table::Kind::kLongText}});
  for (const auto setting : snapshot.getConfiguration()) {
    table.Row({View(setting.getName()), View(setting.getValue())});
  }
  return absl::StrCat("<h2>Configuration</h2>", table.Html());
}

}  // namespace hawser::observe
