#include <capnp/dynamic.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/figures.h"
#include "hawser/tools/hawser/figures_text.h"
#include "hawser/tools/hawser/introspection.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/terminal.h"

namespace hawser::tool {
namespace {

class StatusCommand : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "status", "", "says what the server is doing",
        "Prints one snapshot of the server: the calls of each method since its start, with errors and times "
        "(p50: half of them took no longer), connections, pollers and memory, channels to other servers, "
        "refused peers, the calls in flight and the slowest of late, without calls for snapshots. Lines are "
        "as wide as the terminal, or 100 columns. A server answers clients on its own machine, at a loopback "
        "address; others if its ServerOptions::introspection is kEveryone.\n"
        "\n"
        "With --json: the whole snapshot, with more than the text has; observe/snapshot.capnp says what each "
        "field is. 64-bit integers are strings.",
        "hawser status --target=tcp://localhost:7470\n"
        "hawser status --target=tcp://localhost:7470 --json"};
    return kHelp;
  }

  absl::StatusOr<int> Run(const Session& session) override {
    const auto channel = session.Connect(ForSnapshots());
    if (!channel.ok()) return channel.status();
    absl::StatusOr<OwnSnapshot> snapshot = absl::UnknownError("");
    absl::Notification done;
    FetchSnapshot(*channel, [&](absl::StatusOr<OwnSnapshot> fetched) {
      snapshot = std::move(fetched);
      done.Notify();
    });
    done.WaitForNotification();
    if (!snapshot.ok()) return snapshot.status();
    if (session.json) {
      const auto json = ToJson(capnp::DynamicStruct::Reader(snapshot->Get()), {});
      if (!json.ok()) return json.status();
      std::cout << *json << '\n';
      return 0;
    }
    for (const TextLine& line : StatusLines(FiguresOf(snapshot->Get()), snapshot->Get(), session.target,
                                            Screen::SizeNow().columns)) {
      std::cout << line.text << '\n';
    }
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> NewStatus() { return std::make_unique<StatusCommand>(); }

}  // namespace hawser::tool
