// Snippets of docs/guide.md: which calls are sent again.

#include <memory>
#include <string>
#include <vector>

#include "docs/snippets/page_store.h"
#include "hawser/rpc/status.h"

namespace pages {
namespace {

// Writes to the first replica that answers. After a replica that may have run the call, no other is tried.
absl::Status WriteToOne(const std::vector<PagesStub>& replicas, uint64_t number, capnp::Data::Reader page) {
  absl::Status status = absl::UnavailableError("there is no replica");
  // snippet: was_sent
  for (const PagesStub& replica : replicas) {
    auto call = replica.Write({.timeout = absl::Seconds(5)});
    call.request().setNumber(number);
    call.request().setPage(page);
    status = call.Send().Wait().status();
    if (!absl::IsUnavailable(status) || hawser::WasSent(status)) return status;
  }
  // end of snippet
  return status;
}

absl::Status ConnectTo(const std::vector<std::string>& uris, std::vector<PagesStub>& replicas) {
  const auto Log = [](const std::string&) {};
  // snippet: connect_any
  absl::StatusOr<std::vector<std::shared_ptr<hawser::Channel>>> channels = hawser::Channel::ConnectAny(uris);
  if (!channels.ok()) return channels.status();
  for (const std::shared_ptr<hawser::Channel>& channel : *channels) {
    if (!channel->why_not_ready().ok()) Log(channel->why_not_ready().ToString());
    replicas.emplace_back(channel);
  }
  // end of snippet
  return absl::OkStatus();
}

TEST(RetriesTest, OneReplicaIsEnoughToStartWith) {
  PlainPages store;
  hawser::Server server;
  std::vector<PagesStub> replicas;
  ASSERT_TRUE(ConnectTo({"tcp://127.0.0.1:1", Serve(server, store)}, replicas).ok());
  EXPECT_TRUE(WriteToOne(replicas, 1, Bytes("one")).ok());
}

TEST(RetriesTest, AReplicaThatIsNotThereIsFollowedByTheNext) {
  PlainPages store;
  hawser::Server server;
  const std::string uri = Serve(server, store);
  const auto gone = hawser::Channel::Create("tcp://127.0.0.1:1");
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_TRUE(WriteToOne({PagesStub(*gone), PagesStub(Connect(uri))}, 1, Bytes("one")).ok());
  EXPECT_EQ(Read(PagesStub(Connect(uri)), 1), "one");
}

TEST(RetriesTest, APatientCallOutlivesARestart) {
  PlainPages store;
  auto server = std::make_unique<hawser::Server>();
  const std::string uri = Serve(*server, store);
  PagesStub pages(Connect(uri));
  ASSERT_TRUE(Write(pages, 1, "one").ok());
  ASSERT_TRUE(server->Shutdown(absl::InfinitePast()).ok());
  auto call = pages.Read({.timeout = absl::Seconds(30), .wait_for_ready = true});
  call.request().setNumber(1);
  auto pending = call.Send();
  server = std::make_unique<hawser::Server>();
  ASSERT_TRUE(server->AddService(&store).ok());
  ASSERT_TRUE(server->Listen(uri).ok());
  auto reply = pending.Wait();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(Text((*reply)->getPage()), "one");
}

}  // namespace
}  // namespace pages
