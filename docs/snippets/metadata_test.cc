// Snippets of docs/guide.md: metadata.

#include <string>

#include "docs/snippets/page_store.h"

namespace pages {
namespace {

// Each tenant may read until it has used up what it has; the answer says how much is left.
class MeteredPages : public PlainPages {
 public:
  // snippet: metadata_server
  absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    const std::string tenant(context.metadata().Get("tenant").value_or(""));
    absl::MutexLock lock(&mutex_);
    const auto found = reads_left_.find(tenant);
    if (found == reads_left_.end()) return absl::PermissionDeniedError("no such tenant");
    if (found->second == 0) {
      context.reply_metadata().Add("retry-after", "60");
      return absl::ResourceExhaustedError("this tenant has read enough");
    }
    context.reply_metadata().Add("reads-left", std::to_string(--found->second));
    return PlainPages::Read(context, request, reply);
  }
  // end of snippet

 private:
  absl::Mutex mutex_;
  std::map<std::string, int> reads_left_ ABSL_GUARDED_BY(mutex_) = {{"blue", 1}};
};

struct Seen {
  absl::Status status;
  std::string reads_left;
  std::string retry_after;
};

Seen ReadAs(const PagesStub& pages, const std::string& tenant) {
  // snippet: metadata_client
  const hawser::Metadata metadata = {{"tenant", tenant}};
  auto call = pages.Read({.metadata = &metadata});
  call.request().setNumber(7);
  auto reply = call.Send().Wait();
  const std::string retry_after = hawser::MetadataOf(reply.status()).Get("retry-after").value_or("");
  // end of snippet
  if (!reply.ok()) return {reply.status(), "", retry_after};
  return {reply.status(), std::string(reply->metadata().Get("reads-left").value_or("")), ""};
}

TEST(MetadataTest, ATenantReadsUntilItHasUsedUpWhatItHas) {
  MeteredPages store;
  hawser::Server server;
  PagesStub pages(Connect(Serve(server, store)));
  ASSERT_TRUE(Write(pages, 7, "seven").ok());
  const Seen first = ReadAs(pages, "blue"), second = ReadAs(pages, "blue");
  EXPECT_EQ(first.reads_left, "0");
  EXPECT_TRUE(absl::IsResourceExhausted(second.status));
  EXPECT_EQ(second.retry_after, "60");
  EXPECT_TRUE(absl::IsPermissionDenied(ReadAs(pages, "red").status));
}

}  // namespace
}  // namespace pages
