// Snippets of docs/guide.md: what outlives what.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "docs/snippets/page_store.h"
#include "docs/snippets/work_pool.h"

namespace pages {
namespace {

class PageNode {
 public:
  absl::StatusOr<std::string> Start(const std::string& uri) {
    if (absl::Status added = server_.AddService(&pages_); !added.ok()) return added;
    return server_.Listen(uri);
  }

 private:
  // snippet: members
  PlainPages pages_;  // A PagesService. Outlives the server, whose handlers use it.
  WorkPool pool_{8};  // Outlives the server, which gives it handlers.
  hawser::Server server_{{.executor = [this](auto handler) { pool_.Add(std::move(handler)); }}};
  // end of snippet
};

TEST(LifetimesTest, MembersAreDeclaredInTheOrderOfTheirLifetimes) {
  PageNode node;
  const absl::StatusOr<std::string> uri = node.Start("tcp://127.0.0.1:0");
  ASSERT_TRUE(uri.ok()) << uri.status();
  PagesStub stub(Connect(*uri));
  EXPECT_TRUE(Write(stub, 1, "one").ok());
}

// snippet: two_services
class Mirror : public PlainPages, public SubscriberService {
 public:
  void AddMethods(hawser::MethodTable& table) override {
    PlainPages::AddMethods(table);
    SubscriberService::AddMethods(table);
  }

  absl::Status Changed(hawser::ServerContext&, Subscriber::ChangedParams::Reader request,
                       Subscriber::ChangedResults::Builder) override {
    latest_ = request.getNumber();
    return absl::OkStatus();
  }
  uint64_t latest() const { return latest_; }

 private:
  std::atomic<uint64_t> latest_ = 0;
};
// end of snippet

TEST(LifetimesTest, OneObjectIsTwoServices) {
  Mirror mirror;
  hawser::Server server;
  const std::shared_ptr<hawser::Channel> channel = Connect(Serve(server, mirror));
  EXPECT_TRUE(Write(PagesStub(channel), 1, "one").ok());
  auto changed = SubscriberStub(channel).Changed();
  changed.request().setNumber(7);
  EXPECT_TRUE(changed.Send().Wait().ok());
  EXPECT_EQ(mirror.latest(), 7u);
}

struct CachedPage {
  std::shared_ptr<const void> memory;  // What `bytes` points into.
  capnp::Data::Reader bytes;
};

absl::StatusOr<CachedPage> Fetch(const PagesStub& pages, uint64_t number) {
  auto call = pages.Read();
  call.request().setNumber(number);
  absl::StatusOr<hawser::Reply<Pages::ReadResults>> reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  CachedPage page;
  // snippet: keep_reply
  page.bytes = (*reply)->getPage();
  page.memory = std::move(*reply).Keep();
  // end of snippet
  return page;
}

TEST(LifetimesTest, AKeptReplyOutlivesItsChannelAndServer) {
  absl::StatusOr<CachedPage> small, large;
  const std::string megabyte(1 << 20, 'x');
  {
    PlainPages store;
    hawser::Server server;
    PagesStub stub(Connect(Serve(server, store)));
    ASSERT_TRUE(Write(stub, 1, "one").ok());
    ASSERT_TRUE(Write(stub, 2, megabyte).ok());
    small = Fetch(stub, 1);
    large = Fetch(stub, 2);
  }
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(Text(small->bytes), "one");
  EXPECT_EQ(Text(large->bytes), megabyte);
}

}  // namespace
}  // namespace pages
