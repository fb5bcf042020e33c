// Snippets of docs/guide.md: interceptors.

#include <map>
#include <memory>
#include <string>

#include "docs/snippets/page_store.h"
#include "hawser/health.rpc.h"
#include "hawser/rpc/interceptor.h"

namespace pages {
namespace {

// snippet: interceptor
// Counts the calls that handlers have answered, by method and status code. Refuses those without a known
// tenant.
class Counting : public hawser::Interceptor {
 public:
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning& call) override {
    if (call.side == Side::kClient || hawser::IsBuiltIn(call.method)) return nullptr;
    if (call.metadata.Get("tenant") != "blue") return absl::PermissionDeniedError("no such tenant");
    return std::make_unique<Counted>(*this, call.method.name);
  }

  int calls(const std::string& method, absl::StatusCode code) {
    absl::MutexLock lock(&mutex_);
    return calls_[{method, code}];
  }

 private:
  class Counted : public Call {
   public:
    Counted(Counting& counting, const char* method) : counting_(counting), method_(method) {}
    void OnEnd(const absl::Status& status) override {
      absl::MutexLock lock(&counting_.mutex_);
      ++counting_.calls_[{method_, status.code()}];
    }

   private:
    Counting& counting_;
    const char* const method_;
  };

  absl::Mutex mutex_;
  std::map<std::pair<std::string, absl::StatusCode>, int> calls_ ABSL_GUARDED_BY(mutex_);
};
// end of snippet

TEST(InterceptorsTest, CallsAreCountedByMethodAndStatus) {
  PlainPages store;
  // snippet: interceptor_options
  auto counting = std::make_shared<Counting>();
  hawser::ServerOptions options;
  options.interceptors = {counting};
  hawser::Server server(std::move(options));
  // end of snippet
  PagesStub pages(Connect(Serve(server, store)));
  const hawser::Metadata blue = {{"tenant", "blue"}};
  for (const hawser::Metadata* metadata : {&blue, &blue, static_cast<const hawser::Metadata*>(nullptr)}) {
    auto call = pages.Read({.metadata = metadata});
    call.request().setNumber(7);
    EXPECT_EQ(call.Send().Wait().status().code(),
              metadata == nullptr ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kNotFound);
  }
  EXPECT_TRUE(hawser::health::HealthStub(pages.channel()).Check().Send().Wait().ok());
  EXPECT_TRUE(Eventually(
      [&] { return counting->calls("pages.capnp:Pages.read", absl::StatusCode::kNotFound) == 2; }));
}

}  // namespace
}  // namespace pages
