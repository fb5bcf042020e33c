// kv get --one_sided, at a server that gives no ticket.

#include <stdio.h>
#include <sys/wait.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "examples/kv/kv.rpc.h"
#include "gtest/gtest.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/examples/kv/unimplemented_kv.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::IsOk;

// A server that answers share() with an error.
class FakeKv : public UnimplementedKv {
 public:
  explicit FakeKv(absl::Status share) : share_(std::move(share)) {}

  absl::Status Share(hawser::ServerContext&, KeyValue::ShareParams::Reader,
                     KeyValue::Table::Builder) override {
    return share_;
  }
  absl::Status Get(hawser::ServerContext&, KeyValue::GetParams::Reader,
                   KeyValue::GetResults::Builder reply) override {
    reply.setValue({reinterpret_cast<const uint8_t*>("a rope"), 6});
    return absl::OkStatus();
  }

 private:
  const absl::Status share_;
};

// What `kv get tow --one_sided` prints, stdout behind stderr, and its exit code.
std::string Get(const absl::Status& share) {
  FakeKv service(share);
  hawser::Server server;
  EXPECT_THAT(server.AddService(&service), IsOk());
  const auto uri = server.Listen("tcp://127.0.0.1:0");
  EXPECT_THAT(uri, IsOk());
  FILE* const get =
      popen(absl::StrCat("examples/kv/client/kv --target=", *uri, " get tow --one_sided 2>&1").c_str(), "r");
  EXPECT_NE(get, nullptr);
  std::string printed;
  for (int c; (c = fgetc(get)) != EOF;) printed.push_back(static_cast<char>(c));
  return absl::StrCat(WEXITSTATUS(pclose(get)), "-", printed);
}

TEST(GetOneSidedTest, AServerWithoutRoomForATicketIsCalled) {
  EXPECT_EQ(Get(absl::ResourceExhaustedError("too many tickets")),
            "0-kv get: too many tickets; the server is called\na rope");
}

TEST(GetOneSidedTest, AnyOtherErrorIsSaid) {
  EXPECT_EQ(Get(absl::FailedPreconditionError("no memory to share")),
            "1-kv get: FAILED_PRECONDITION: no memory to share\n");
}

}  // namespace
}  // namespace kv
