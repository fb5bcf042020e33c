// Snippets of docs/guide.md: large payloads.

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "docs/snippets/page_store.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/task.h"

namespace pages {
namespace {

absl::Status WriteLarge(const std::shared_ptr<hawser::Channel>& channel, const PagesStub& pages,
                        size_t size_bytes) {
  const auto fill = [](uint8_t* data, size_t count) { std::memset(data, 'x', count); };
  // snippet: allocate
  absl::StatusOr<hawser::Buffer> buffer = channel->AllocateBuffer(size_bytes);
  if (!buffer.ok()) return buffer.status();
  fill(buffer->data(), buffer->size_bytes());  // From the disk, say.
  auto call = pages.Write();
  call.request().setNumber(7);
  call.request().adoptPage(call.Attach(*std::move(buffer)));
  return call.Send().Wait().status();
  // end of snippet
}

class KeptPages : public PlainPages {
 public:
  // snippet: keep_bytes
  absl::Status Write(hawser::ServerContext& context, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder) override {
    hawser::KeptBytes page = context.KeepBytes(request.getPage());
    absl::MutexLock lock(&mutex_);
    pages_[request.getNumber()] = std::move(page);
    return absl::OkStatus();
  }
  // end of snippet

  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    const auto page = pages_.find(request.getNumber());
    if (page == pages_.end()) return PlainPages::Read(context, request, reply);
    reply.adoptPage(context.Attach(page->second.bytes, page->second.owner));
    return absl::OkStatus();
  }

 private:
  absl::Mutex mutex_;
  std::map<uint64_t, hawser::KeptBytes> pages_ ABSL_GUARDED_BY(mutex_);
};

TEST(LargeTest, APageIsKeptWhereItWasReceived) {
  KeptPages store;
  hawser::Server server;
  const auto channel = Connect(Serve(server, store));
  PagesStub pages(channel);
  ASSERT_TRUE(WriteLarge(channel, pages, 1 << 20).ok());
  EXPECT_EQ(Read(pages, 7), std::string(1 << 20, 'x'));
  ASSERT_TRUE(Write(pages, 8, "short").ok());
  EXPECT_EQ(Read(pages, 8), "short");
}

class Journal : public PlainPages {
 public:
  // snippet: keep_struct
  absl::Status Write(hawser::ServerContext& context, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder) override {
    hawser::Kept<Pages::WriteParams> write = context.Keep(request);  // Or of any struct in it.
    absl::MutexLock lock(&mutex_);
    kept_bytes_ += write.memory_bytes;
    last_number_ = write->getNumber();
    journal_.push_back(std::move(write));
    return absl::OkStatus();
  }
  // end of snippet

  std::vector<hawser::Kept<Pages::WriteParams>> Take() {
    absl::MutexLock lock(&mutex_);
    EXPECT_EQ(last_number_, journal_.back()->getNumber());
    EXPECT_GE(kept_bytes_, journal_.back()->getPage().size());
    return std::exchange(journal_, {});
  }

 private:
  absl::Mutex mutex_;
  uint64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<hawser::Kept<Pages::WriteParams>> journal_ ABSL_GUARDED_BY(mutex_);
};

TEST(LargeTest, AJournalKeepsWhatWasWritten) {
  std::vector<hawser::Kept<Pages::WriteParams>> writes;
  {
    Journal journal;
    hawser::Server server;
    const auto channel = Connect(Serve(server, journal));
    PagesStub pages(channel);
    ASSERT_TRUE(Write(pages, 8, "short").ok());
    ASSERT_TRUE(WriteLarge(channel, pages, 1 << 20).ok());
    writes = journal.Take();
  }
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0]->getNumber(), 8u);
  EXPECT_EQ(Text(writes[0]->getPage()), "short");
  EXPECT_EQ(writes[1]->getNumber(), 7u);
  EXPECT_EQ(Text(writes[1]->getPage()), std::string(1 << 20, 'x'));
}

constexpr size_t kPageBytes = 1 << 20;

absl::StatusOr<absl::Span<uint8_t>> ReadInto(const PagesStub& pages, hawser::RegisteredMemory& cache) {
  // snippet: receive_into
  auto call = pages.Read();
  call.request().setNumber(7);
  call.ReceiveInto(cache.bytes().first(kPageBytes));
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return reply->Land((*reply)->getPage());  // Where the page is: in `cache`, at its beginning.
  // end of snippet
}

TEST(LargeTest, APageIsReadIntoMemoryOfTheCallers) {
  KeptPages store;
  hawser::Server server;
  const auto channel = Connect(Serve(server, store));
  PagesStub pages(channel);
  std::vector<uint64_t> blocks(kPageBytes / 8);
  auto* const begin = reinterpret_cast<uint8_t*>(blocks.data());
  absl::StatusOr<hawser::RegisteredMemory> cache =
      channel->Register({.address = begin, .length_bytes = kPageBytes});
  ASSERT_TRUE(cache.ok());
  ASSERT_TRUE(WriteLarge(channel, pages, kPageBytes).ok());
  absl::StatusOr<absl::Span<uint8_t>> page = ReadInto(pages, *cache);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->data(), begin);
  EXPECT_EQ(std::string(page->begin(), page->end()), std::string(kPageBytes, 'x'));
  ASSERT_TRUE(Write(pages, 7, "short").ok());
  page = ReadInto(pages, *cache);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->data(), begin);
  EXPECT_EQ(std::string(page->begin(), page->end()), "short");
}

class Gateway : public PlainPages {
 public:
  absl::Status Connect(hawser::Server& server, const std::string& uri) {
    hawser::ChannelOptions options;
    options.server = &server;  // Memory and pollers of the server.
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(uri, options);
    if (!channel.ok()) return channel.status();
    backend_.emplace(*std::move(channel));
    return absl::OkStatus();
  }

  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    return Forward(context.Defer(), request, reply);
  }

  // snippet: forward
  hawser::Task Forward(hawser::DeferredCall call, Pages::ReadParams::Reader request,
                       Pages::ReadResults::Builder reply) {
    auto read = backend_->Read(hawser::CallOptions::For(call.context()));
    read.request().setNumber(request.getNumber());
    absl::StatusOr<hawser::Reply<Pages::ReadResults>> page = co_await read.Send();
    if (!page.ok()) co_return page.status();
    const capnp::Data::Reader bytes = (*page)->getPage();
    reply.adoptPage(call.context().Attach(bytes, std::move(*page).Keep()));
    co_return absl::OkStatus();
  }
  // end of snippet

 private:
  std::optional<PagesStub> backend_;
};

TEST(LargeTest, AGatewayForwardsWhatItReceives) {
  KeptPages store;
  hawser::Server back;
  const std::string uri = Serve(back, store);
  const auto channel = Connect(uri);
  ASSERT_TRUE(WriteLarge(channel, PagesStub(channel), 1 << 20).ok());

  Gateway gateway;
  hawser::Server front;
  const std::string front_uri = Serve(front, gateway);
  ASSERT_TRUE(gateway.Connect(front, uri).ok());
  EXPECT_EQ(Read(PagesStub(Connect(front_uri)), 7), std::string(1 << 20, 'x'));
}

}  // namespace
}  // namespace pages
