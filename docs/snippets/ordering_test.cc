// Snippets of docs/guide.md: the order of calls.

#include <string>
#include <vector>

#include "docs/snippets/page_store.h"

namespace pages {
namespace {

absl::Status WriteWithMark(const PagesStub& pages, capnp::Data::Reader bytes, capnp::Data::Reader mark) {
  auto page = pages.Write();
  page.request().setNumber(7);
  page.request().setPage(bytes);
  if (absl::Status status = page.Send().Wait().status(); !status.ok()) return status;
  auto commit = pages.Write();  // Sent after the answer to `page`, so it runs after it.
  commit.request().setNumber(0);
  commit.request().setPage(mark);
  return commit.Send().Wait().status();
}

TEST(OrderingTest, ACallThatFollowsAnAnswerRunsAfterIt) {
  PlainPages store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  EXPECT_TRUE(WriteWithMark(pages, Bytes("seven"), Bytes("mark")).ok());
  EXPECT_EQ(Read(pages, 0), "mark");
}

absl::StatusOr<std::vector<std::string>> ReadAll(const PagesStub& pages,
                                                 const std::vector<uint64_t>& numbers) {
  std::vector<std::string> result;
  // snippet: parallel
  std::vector<hawser::PendingCall<Pages::ReadResults>> pending;
  for (uint64_t number : numbers) {
    auto call = pages.Read();
    call.request().setNumber(number);
    pending.push_back(call.Send());
  }
  // end of snippet
  for (hawser::PendingCall<Pages::ReadResults>& each : pending) {
    auto reply = each.Wait();
    if (!reply.ok()) return reply.status();  // Cancels those that are not waited for yet.
    result.push_back(Text((*reply)->getPage()));
  }
  return result;
}

TEST(OrderingTest, CallsInFlightTogether) {
  PlainPages store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(Write(pages, i, std::to_string(i)).ok());
  const auto read = ReadAll(pages, {3, 1, 39});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (std::vector<std::string>{"3", "1", "39"}));
  EXPECT_EQ(ReadAll(pages, {3, 40, 1}).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pages
