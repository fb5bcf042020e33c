// Snippets of docs/guide.md: a server as it is deployed.
//
//   pages_server [--daemon]

#include <signal.h>
#include <syslog.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/time/clock.h"
#include "docs/snippets/page_store.h"
#include "hawser/rpc/log.h"

namespace pages {
namespace {

void LogToSyslog() {
  // snippet: log_sink
  hawser::SetLogSink([](hawser::LogSeverity severity, absl::string_view line) {
    constexpr int kPriorities[] = {LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERR};
    syslog(kPriorities[static_cast<int>(severity)], "%.*s", static_cast<int>(line.size()), line.data());
  });
  // end of snippet
}

hawser::ServerOptions OptionsForManyClients() {
  // snippet: many_clients
  hawser::ServerOptions options;
  options.pollers = 4;
  options.pool.limit_bytes = size_t{8} << 30;
  options.connections_max = 40000;
  options.connection.slots = 8;
  options.connection.message_bytes_max = 4 << 20;
  // end of snippet
  return options;
}

int Fail(const absl::Status& status) {
  std::cerr << status << std::endl;
  return 1;
}

// snippet: main
int Main(bool in_background) {
  // First of all: a child of fork() may use nothing of Hawser that its parent has made.
  if (in_background && daemon(/*nochdir=*/1, /*noclose=*/1) != 0) {
    std::perror("daemon");
    return 1;
  }
  // Before any thread is started, so that each of them inherits the mask, and no handler is needed.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  LogToSyslog();
  PlainPages pages;  // A PagesService.
  hawser::Server server(OptionsForManyClients());
  if (absl::Status added = server.AddService(&pages); !added.ok()) return Fail(added);
  absl::StatusOr<std::string> uri = server.Listen("tcp://127.0.0.1:0");
  if (!uri.ok()) return Fail(uri.status());
  std::cout << "process " << getpid() << " listens on " << *uri << std::endl;

  int signal;
  sigwait(&signals, &signal);
  absl::Status drained = server.Shutdown(absl::Now() + absl::Seconds(20));
  if (!drained.ok()) std::cerr << drained << std::endl;  // Some calls were cancelled.
  return 0;
}
// end of snippet

}  // namespace
}  // namespace pages

int main(int argc, char** argv) {
  const bool in_background = argc > 1 && std::string(argv[1]) == "--daemon";
  return pages::Main(in_background);
}
