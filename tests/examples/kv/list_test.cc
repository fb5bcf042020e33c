// kv list of a server that lies: it ends, with an error that says what is wrong, and prints nothing that a
// terminal would obey.

#include <capnp/any.h>
#include <stdio.h>
#include <sys/wait.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/kv/kv.rpc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/examples/kv/unimplemented_kv.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::IsOk;
using ::testing::HasSubstr;
using ::testing::Not;

class LyingKv : public UnimplementedKv {
 public:
  using Answer = std::function<void(KeyValue::ListResults::Builder reply)>;
  explicit LyingKv(Answer answer) : answer_(std::move(answer)) {}

  absl::Status List(hawser::ServerContext&, KeyValue::ListParams::Reader,
                    KeyValue::ListResults::Builder reply) override {
    answer_(reply);
    return absl::OkStatus();
  }

 private:
  const Answer answer_;
};

struct Listed {
  int status;
  std::string printed;  // Both streams.
};

Listed ListOf(LyingKv::Answer answer) {
  LyingKv service(std::move(answer));
  hawser::Server server;
  EXPECT_THAT(server.AddService(&service), IsOk());
  const auto uri = server.Listen("tcp://127.0.0.1:0");
  EXPECT_THAT(uri, IsOk());
  FILE* const list =
      popen(absl::StrCat("timeout 30 examples/kv/client/kv --target=", *uri, " list 2>&1").c_str(), "r");
  Listed listed;
  for (int c; (c = fgetc(list)) != EOF;) listed.printed.push_back(static_cast<char>(c));
  const int ended = pclose(list);
  listed.status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return listed;
}

TEST(ListTest, AListThatCannotBeReadIsAnError) {
  const Listed listed = ListOf([](KeyValue::ListResults::Builder reply) {
    // Half a milliard entries of no bytes each.
    capnp::AnyStruct::Builder(std::move(reply))
        .getPointerSection()[0]
        .initAs<capnp::List<capnp::Void>>((1 << 29) - 1);
  });
  EXPECT_EQ(listed.status, 1);
  EXPECT_THAT(listed.printed, HasSubstr("malformed"));
  EXPECT_THAT(listed.printed, Not(HasSubstr("terminate")));
}

TEST(ListTest, PagesThatGoInCirclesEnd) {
  int pages = 0;
  const Listed listed = ListOf([&pages](KeyValue::ListResults::Builder reply) {
    reply.initEntries(1)[0].setKey("a");
    reply.setNext(++pages % 2 == 0 ? "a" : "b");
  });
  EXPECT_EQ(listed.status, 1);
  EXPECT_THAT(listed.printed, HasSubstr("does not get on"));
  EXPECT_EQ(pages, 2);
}

TEST(ListTest, PagesWithoutKeysEnd) {
  std::string next;
  const Listed listed = ListOf([&next](KeyValue::ListResults::Builder reply) {
    next.push_back('a');
    reply.setNext(next);
  });
  EXPECT_EQ(listed.status, 1);
  EXPECT_THAT(listed.printed, HasSubstr("does not get on"));
  EXPECT_EQ(next, "a");
}

TEST(ListTest, KeysArePrintedWithoutWhatATerminalObeys) {
  const Listed listed = ListOf([](KeyValue::ListResults::Builder reply) {
    auto entries = reply.initEntries(2);
    entries[0].setKey("\x1b[2J\x07red");
    entries[1].setKey("exe\u202Etxt.");  // Right to left override.
  });
  EXPECT_EQ(listed.status, 0);
  for (const char* bad : {"\x1b", "\x07", "\u202E"}) EXPECT_THAT(listed.printed, Not(HasSubstr(bad)));
  EXPECT_THAT(listed.printed, HasSubstr("red"));
}

}  // namespace
}  // namespace kv
