#include "hawser/observe/status_service.h"

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "hawser/base/check.h"
#include "hawser/base/peer_text.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/json.h"
#include "hawser/observe/metrics_text.h"
#include "hawser/observe/page.h"
#include "hawser/observe/prometheus.h"

namespace hawser::observe {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kJson[] = "application/json";

// Whether "localhost:9090", of a request that has come over loopback, is a name that this machine has for
// itself.
bool IsOwnName(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[::1]")) return host.empty() || host.front() == ':';
  const std::string name(host.substr(0, host.find(':')));
  in_addr address;
  return absl::EqualsIgnoreCase(name, "localhost") ||
         (inet_pton(AF_INET, name.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

// The value of `from` in "a=b&from=100"; 0 if there is none that is a number.
size_t FromOf(absl::string_view query) {
  constexpr absl::string_view kName = "from=";
  while (!query.empty()) {
    const absl::string_view pair = query.substr(0, query.find('&'));
    uint64_t number;
    if (absl::StartsWith(pair, kName) && absl::SimpleAtoi(pair.substr(kName.size()), &number)) return number;
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return 0;
}

// Whether one of "keep-alive, close" asks for the end of the connection.
bool AsksToClose(absl::string_view connection) {
  for (absl::string_view each : absl::StrSplit(connection, ',')) {
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(each), "close")) return true;
  }
  return false;
}

// What a request asks for, and of which host: its target is a path or, as a proxy's is, a URI (RFC 7230,
// 5.3.2), whose host counts then.
struct Target {
  std::string host;
  std::string path;  // With the query.
};
Target TargetOf(absl::string_view url, absl::string_view host) {
  constexpr absl::string_view kHttp = "http://";
  if (!absl::StartsWithIgnoreCase(url, kHttp)) return {std::string(host), std::string(url)};
  url.remove_prefix(kHttp.size());
  const size_t end = std::min(url.find_first_of("/?"), url.size());
  const absl::string_view path = url.substr(end);
  return {std::string(url.substr(0, end)), absl::StrCat(absl::StartsWith(path, "/") ? "" : "/", path)};
}

std::string NotFound() {
  std::string text = "there is no such page; there are:\n";
  for (const Page& page : Pages()) absl::StrAppend(&text, page.path, "\n", page.json_path, "\n");
  return text + "/snapshot.json\n/metrics\n/healthz\n";
}

kj::Duration Kj(absl::Duration duration) { return absl::ToInt64Microseconds(duration) * kj::MICROSECONDS; }

}  // namespace

StatusService::StatusService(Source source, const Options& options)
    : source_(std::move(source)), options_(options), history_(options.history_points) {
  kj::HttpHeaderTable::Builder headers;
  policy_ = headers.add("Content-Security-Policy");
  no_sniff_ = headers.add("X-Content-Type-Options");
  cache_ = headers.add("Cache-Control");
  referrer_ = headers.add("Referrer-Policy");
  allow_ = headers.add("Allow");
  headers_ = headers.build();
}

kj::HttpServerSettings StatusService::Settings() {
  kj::HttpServerSettings settings;
  settings.headerTimeout = Kj(options_.connection_time);
  settings.pipelineTimeout = Kj(options_.idle_time);
  settings.canceledUploadGracePeriod = 0 * kj::SECONDS;
  settings.canceledUploadGraceBytes = 0;
  settings.errorHandler = *this;
  settings.callbacks = *this;
  return settings;
}

class StatusService::Connection final : public kj::HttpService {
 public:
  Connection(StatusService& service, kj::Timer& timer) : service_(service), timer_(timer) {}

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                            kj::AsyncInputStream& body, Response& response) override {
    const bool is_last = ++requests_ >= kRequestsMax ||
                         AsksToClose(View(headers.get(kj::HttpHeaderId::CONNECTION).orDefault("")));
    // kj asks shouldClose() as the head of the answer is sent, which is within this call.
    service_.closes_ = is_last;
    auto sent = kj::defer([this] { service_.closes_ = false; });
    auto answered = service_.request(method, url, headers, body, response);
    return answered.then([this, is_last]() -> kj::Promise<void> {
      // An error behind an answer ends the connection. kj 0.9 would wait for the client to end it.
      if (is_last) return KJ_EXCEPTION(DISCONNECTED, "that was the last answer of the connection");
      // A timer fires only after the event loop has looked at all sockets.
      return timer_.afterDelay(0 * kj::SECONDS);
    });
  }

 private:
  StatusService& service_;
  kj::Timer& timer_;
  int requests_ = 0;
};

kj::Own<kj::HttpService> StatusService::OfConnection(kj::Timer& timer) {
  return kj::heap<Connection>(*this, timer);
}

void StatusService::Sample() {
  // A source that throws costs one point.
  KJ_IF_MAYBE (exception, kj::runCatchingExceptions([this] { history_.Add(Take()); })) {
    (void)exception;
  }
}

wire::Snapshot::Reader StatusService::Take() {
  const auto now = std::chrono::steady_clock::now();
  if (snapshot_ == nullptr || now - taken_ >= absl::ToChronoNanoseconds(options_.snapshot_age)) {
    auto snapshot = std::make_unique<capnp::MallocMessageBuilder>();
    source_(snapshot->initRoot<wire::Snapshot>());
    snapshot_ = std::move(snapshot);
    taken_ = std::chrono::steady_clock::now();
  }
  return snapshot_->getRoot<wire::Snapshot>().asReader();
}

kj::Promise<void> StatusService::request(kj::HttpMethod method, kj::StringPtr url,
                                         const kj::HttpHeaders& headers, kj::AsyncInputStream& body,
                                         Response& response) {
  if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) {
    return Answer(response, {405, "Method Not Allowed", kText, "GET and HEAD only\n"}, /*allow=*/true);
  }
  if (body.tryGetLength().orDefault(1) != 0) {
    return Answer(response, {413, "Payload Too Large", kText, "no request here has a body\n"});
  }
  const Target target = TargetOf(View(url), View(headers.get(kj::HttpHeaderId::HOST).orDefault("")));
  if (options_.loopback_only && !IsOwnName(target.host)) {
    return Answer(response, {403, "Forbidden", kText,
                             "this page is for this machine: ask for it as localhost or 127.0.0.1\n"});
  }
  return Answer(response, Get(target.path));
}

StatusService::Result StatusService::Get(absl::string_view url) {
  const size_t question = url.find('?');
  const absl::string_view path = url.substr(0, question);
  const absl::string_view query = question == absl::string_view::npos ? "" : url.substr(question + 1);
  if (path == "/healthz") return Health();  // Small, and what others rely on.
  if (answer_bytes_ > kAnswerBytesMax) {
    return {503, "Service Unavailable", kText, "too many answers wait for clients that read slowly\n"};
  }
  for (const Page& page : Pages()) {
    if (path == page.path) return {200, "OK", kHtml, ToHtml(page, Take(), history_, FromOf(query))};
    if (path == page.json_path) return {200, "OK", kJson, ToJson(page, Take(), history_)};
  }
  if (path == "/snapshot.json") return {200, "OK", kJson, JsonOf(Take())};
  if (path == "/metrics") return {200, "OK", "text/plain; version=0.0.4", Metrics()};
  return {404, "Not Found", kText, NotFound()};
}

StatusService::Result StatusService::Health() {
  const wire::Server::State state = options_.state ? options_.state() : Take().getServer().getState();
  const std::string text = absl::StrCat(server::NameOf(state), "\n");
  if (state == wire::Server::State::SERVING) return {200, "OK", kText, text};
  return {503, "Service Unavailable", kText, text};
}

std::string StatusService::Metrics() {
  std::string text = ToPrometheus(Take());
  if (!options_.metrics) return text;
  std::string own;
  const char* failed = nullptr;
  std::string why;
  // The library's metrics are worth most when something is wrong.
  KJ_IF_MAYBE (exception, kj::runCatchingExceptions([&] { own = options_.metrics(); })) {
    failed = "it threw an exception: ";
    why = std::string(View(exception->getDescription()));
  } else if (!IsUtf8(own)) {
    failed = "its text is not UTF-8";
  } else if (why = WhyNoMetrics(own); !why.empty()) {
    // Prometheus would drop the whole scrape.
    return absl::StrCat(text, "# The program's own metrics are not here: ", why, "\n");
  }
  if (failed != nullptr) {
    return absl::StrCat(text, "# The program's own metrics are not here: ", failed, EscapePeerText(why),
                        "\n");
  }
  absl::StrAppend(&text, own);
  if (text.back() != '\n') text.push_back('\n');  // The last line has to end, too.
  return text;
}

kj::Promise<void> StatusService::Answer(Response& response, Result result, bool allow) {
  kj::HttpHeaders headers(*headers_);
  headers.set(kj::HttpHeaderId::CONTENT_TYPE, result.type);
  headers.set(policy_,
              "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
              "frame-ancestors 'none'");
  headers.set(no_sniff_, "nosniff");
  headers.set(cache_, "no-store");
  headers.set(referrer_, "no-referrer");
  if (allow) headers.set(allow_, "GET, HEAD");
  auto body = kj::heap<std::string>(std::move(result.body));
  kj::Own<kj::AsyncOutputStream> out = response.send(result.code, result.name, headers, body->size());
  answer_bytes_ += body->size();
  auto sent = kj::defer([this, bytes = body->size()] { HAWSER_SUBTRACT(answer_bytes_, bytes); });
  auto written = out->write(body->data(), body->size());
  return written.attach(kj::mv(out), kj::mv(body), kj::mv(sent));
}

kj::Promise<void> StatusService::handleClientProtocolError(kj::HttpHeaders::ProtocolError error,
                                                           Response& response) {
  return Answer(response, {error.statusCode, error.statusMessage.cStr(), kText,
                           absl::StrCat(View(error.description), "\n")});
}

kj::Promise<void> StatusService::handleApplicationError(kj::Exception, kj::Maybe<Response&> response) {
  KJ_IF_MAYBE (open, response) {
    return Answer(*open, {500, "Internal Server Error", kText, "the snapshot could not be made\n"});
  }
  return kj::READY_NOW;
}

}  // namespace hawser::observe
