// HTTP requests to the status page, of several connections, in pieces: the shipping service and its bounds on
// connections, over pipes in memory and on a clock of our own.
//
// An input is what a client sends, as it is. The byte 0xfe begins an order to the client; see Play().
#include <capnp/message.h>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <kj/timer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "hawser/observe/http_connections.h"
#include "hawser/observe/status_service.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/observe/busy_snapshot.h"

namespace hawser::fuzz {
namespace {

using observe::StatusService;

constexpr size_t kConnectionsMax = 3;
constexpr size_t kClientsMax = 12;
constexpr auto kConnectionTime = 10 * kj::SECONDS;
constexpr char kOrder = '\xfe';
// The most that one input sends, so that it does not take long.
constexpr size_t kSentMax = 512 << 10;

// Whether a page may be shown to a request with this Host: the rule of StatusService::Options::loopback_only,
// said again. Addresses that are not well written, such as 127.1.2.999, may be refused.
enum class MaySee { kNo, kPerhaps, kYes };
MaySee MaySeeIt(absl::string_view host) {
  if (host == "[::1]" || absl::StartsWith(host, "[::1]:")) return MaySee::kYes;
  const absl::string_view name = host.substr(0, host.find(':'));
  if (absl::EqualsIgnoreCase(name, "localhost") || name == "127.0.0.1") return MaySee::kYes;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  return parts.size() == 4 && parts[0] == "127" ? MaySee::kPerhaps : MaySee::kNo;
}

// What the service answered to one request.
struct Answered {
  bool is_head = false;
  uint32_t status = 0;
};

// What is known of one connection, which outlives both of its ends.
struct Line {
  size_t bytes_read = 0;    // By the server.
  bool may_be_cut = false;  // It has reached a limit, or its client has stopped reading or has gone.
  kj::TimePoint start = kj::origin<kj::TimePoint>();
  std::vector<Answered> answered;
  std::string received;
  bool has_ended = false;  // The server has closed it.
};

// The server's end of a pipe: counts what the server reads, and may keep.
class ServerEnd final : public kj::AsyncIoStream {
 public:
  ServerEnd(kj::Own<kj::AsyncIoStream> inner, Line& line) : inner_(kj::mv(inner)), line_(line) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t min, size_t max) override {
    return inner_->tryRead(buffer, min, max).then([this](size_t bytes) {
      line_.bytes_read += bytes;
      FUZZ_EXPECT(line_.bytes_read <= observe::HttpConnections::kRequestBytesMax, line_.bytes_read);
      return bytes;
    });
  }
  kj::Promise<void> write(const void* buffer, size_t size) override { return inner_->write(buffer, size); }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return inner_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }

 private:
  kj::Own<kj::AsyncIoStream> inner_;
  Line& line_;
};

// Hands requests of one connection to the service, and checks what it answers to them.
class Watched final : public kj::HttpService {
 public:
  Watched(kj::Own<kj::HttpService> service, Line& line) : service_(kj::mv(service)), line_(line) {}

  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr, const kj::HttpHeaders& headers,
                            kj::AsyncInputStream& body, Response& response) override;

 private:
  class WatchedResponse final : public Response {
   public:
    WatchedResponse(Response& inner, Line& line, MaySee may_see, bool is_head)
        : inner_(inner), line_(line), may_see_(may_see), is_head_(is_head) {}

    kj::Own<kj::AsyncOutputStream> send(kj::uint status, kj::StringPtr text, const kj::HttpHeaders& headers,
                                        kj::Maybe<uint64_t> size) override {
      const bool is_shown = status == 200 || status == 404;
      FUZZ_EXPECT(is_shown || status == 403 || status == 405 || status == 413, status);
      FUZZ_EXPECT(is_shown ? may_see_ != MaySee::kNo : may_see_ != MaySee::kYes, status);
      line_.answered.push_back({is_head_, status});
      return inner_.send(status, text, headers, size);
    }
    kj::Own<kj::WebSocket> acceptWebSocket(const kj::HttpHeaders&) override {
      FUZZ_EXPECT(false, "a web socket");
      KJ_UNREACHABLE;
    }

   private:
    Response& inner_;
    Line& line_;
    const MaySee may_see_;
    const bool is_head_;
  };

  kj::Own<kj::HttpService> service_;
  Line& line_;
};

kj::Promise<void> Watched::request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                                   kj::AsyncInputStream& body, Response& response) {
  const kj::StringPtr header = headers.get(kj::HttpHeaderId::HOST).orDefault("");
  absl::string_view host(header.cStr(), header.size());
  // The host of a URI counts instead.
  if (absl::string_view uri(url.cStr(), url.size()); absl::StartsWithIgnoreCase(uri, "http://")) {
    host = uri.substr(7, uri.find_first_of("/?", 7) - 7);
  }
  const bool is_head = method == kj::HttpMethod::HEAD;
  const bool is_asked_well =
      (method == kj::HttpMethod::GET || is_head) && body.tryGetLength().orDefault(1) == 0;
  const MaySee may_see = is_asked_well ? MaySeeIt(host) : MaySee::kNo;
  auto watched = kj::heap<WatchedResponse>(response, line_, may_see, is_head);
  auto answered = service_->request(method, url, headers, body, *watched);
  return answered.attach(kj::mv(watched));
}

// One client, which sends and reads on its own.
class Client {
 public:
  Client(kj::Own<kj::AsyncIoStream> stream, Line& line) : line_(line), stream_(kj::mv(stream)) {
    reading_ = Read().eagerlyEvaluate([this](kj::Exception&&) { line_.has_ended = true; });
  }

  void Send(std::string bytes) {
    auto kept = kj::heap<std::string>(std::move(bytes));
    AfterSent([this, kept = kj::mv(kept)]() mutable {
      auto written = stream_->write(kept->data(), kept->size());
      return written.attach(kj::mv(kept));
    });
  }
  void EndSending() {
    if (std::exchange(has_ended_sending_, true)) return;
    AfterSent([this] {
      stream_->shutdownWrite();
      return kj::Promise<void>(kj::READY_NOW);
    });
  }
  bool has_ended_sending() const { return has_ended_sending_; }
  void Pause() {
    is_paused_ = true;
    line_.may_be_cut = true;
  }
  void Resume() {
    is_paused_ = false;
    if (resumed_.get() != nullptr) resumed_->fulfill();
  }

 private:
  template <typename Function>
  void AfterSent(Function&& function) {
    sending_ = sending_.then(kj::fwd<Function>(function)).eagerlyEvaluate(nullptr);
  }
  kj::Promise<void> Read() {
    return stream_->tryRead(buffer_, 1, sizeof(buffer_)).then([this](size_t bytes) -> kj::Promise<void> {
      line_.received.append(buffer_, bytes);
      line_.has_ended = bytes == 0;
      if (bytes == 0) return kj::READY_NOW;
      if (!is_paused_) return Read();
      auto resumed = kj::newPromiseAndFulfiller<void>();
      resumed_ = kj::mv(resumed.fulfiller);
      return resumed.promise.then([this] { return Read(); });
    });
  }

  Line& line_;
  kj::Own<kj::AsyncIoStream> stream_;
  char buffer_[4096];
  bool is_paused_ = false;
  bool has_ended_sending_ = false;
  kj::Own<kj::PromiseFulfiller<void>> resumed_;
  kj::Promise<void> sending_ = kj::READY_NOW;
  kj::Promise<void> reading_ = kj::READY_NOW;
};

// Takes one line off the front, without its end.
absl::string_view TakeLine(absl::string_view& text) {
  const size_t end = text.find("\r\n");
  const absl::string_view line = text.substr(0, end);
  text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 2);
  return line;
}

// Takes the head of a response off the front, and checks it. Returns its status and the length of its body.
std::pair<uint32_t, uint64_t> TakeHead(absl::string_view& text) {
  const absl::string_view status_line = TakeLine(text);
  uint32_t status = 0;
  FUZZ_EXPECT(absl::StartsWith(status_line, "HTTP/1.1 ") && status_line.size() > 13 &&
                  status_line[12] == ' ' && absl::SimpleAtoi(status_line.substr(9, 3), &status) &&
                  status >= 200 && status <= 599,
              status_line);
  int lengths = 0, policies = 0, types = 0;
  uint64_t length = 0;
  for (absl::string_view line; !(line = TakeLine(text)).empty();) {
    for (char c : line) FUZZ_EXPECT(absl::ascii_isprint(static_cast<unsigned char>(c)), line);
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    FUZZ_EXPECT(!absl::EqualsIgnoreCase(header.first, "transfer-encoding"), line);
    policies += absl::EqualsIgnoreCase(header.first, "content-security-policy");
    types += absl::EqualsIgnoreCase(header.first, "content-type");
    if (!absl::EqualsIgnoreCase(header.first, "content-length")) continue;
    ++lengths;
    FUZZ_EXPECT(absl::SimpleAtoi(header.second, &length), line);
  }
  FUZZ_EXPECT(lengths == 1 && policies == 1 && types == 1, lengths, " ", policies, " ", types);
  return {status, length};
}

// What came on one connection is a sequence of whole responses, those of the service first.
void CheckReceived(const Line& line) {
  absl::string_view rest = line.received;
  for (size_t number = 0; !rest.empty(); ++number) {
    const bool is_whole = absl::StrContains(rest, "\r\n\r\n");
    FUZZ_EXPECT(is_whole || line.may_be_cut, rest);
    if (!is_whole) return;
    const auto [status, length] = TakeHead(rest);
    bool is_head = false;
    if (number < line.answered.size()) {
      FUZZ_EXPECT(status == line.answered[number].status, status);
      is_head = line.answered[number].is_head;
    } else {
      // What kj could not read is refused, and ends the connection.
      FUZZ_EXPECT(number == line.answered.size() && status >= 400, status);
    }
    if (is_head) continue;
    FUZZ_EXPECT(rest.size() >= length || line.may_be_cut, rest.size(), " of ", length);
    rest.remove_prefix(std::min<size_t>(length, rest.size()));
    FUZZ_EXPECT(number < line.answered.size() || rest.empty(), rest);
  }
}

class World {
 public:
  World() {
    service_.Sample();
    Connect();
  }

  void Connect() {
    if (lines_.size() == kClientsMax) return;
    // The oldest one of those that may still be there has to go.
    if (connections_.size() >= kConnectionsMax) {
      for (const auto& line : lines_) line->may_be_cut = true;
    }
    lines_.push_back(std::make_unique<Line>());
    lines_.back()->start = timer_.now();
    kj::TwoWayPipe pipe = kj::newTwoWayPipe();
    clients_.push_back(std::make_unique<Client>(kj::mv(pipe.ends[0]), *lines_.back()));
    Add(kj::mv(pipe.ends[1]), *lines_.back());
    FUZZ_EXPECT(connections_.size() <= kConnectionsMax);
    current_ = clients_.size() - 1;
  }
  void Choose(size_t number) { current_ = number % clients_.size(); }
  void Send(absl::string_view bytes) {
    if (bytes.empty() || client() == nullptr || client()->has_ended_sending()) return;
    bytes = bytes.substr(0, kSentMax - std::min(kSentMax, sent_));
    sent_ += bytes.size();
    client()->Send(std::string(bytes));
  }
  void EndSending() {
    if (client() != nullptr) client()->EndSending();
  }
  void Pause() {
    if (client() != nullptr) client()->Pause();
  }
  void Resume() {
    if (client() != nullptr) client()->Resume();
  }
  void Drop() {
    lines_[current_]->may_be_cut = true;
    clients_[current_] = nullptr;
  }
  void Run() {
    // An event loop that finds no event tells its timer the time, before which no connection has its next
    // request read.
    for (int i = 0; i <= StatusService::kRequestsMax; ++i) {
      wait_scope_.poll();
      timer_.advanceTo(timer_.now());
    }
    wait_scope_.poll();
    FUZZ_EXPECT(service_.answer_bytes() <= kConnectionsMax << 20, service_.answer_bytes());
  }
  void Wait(kj::Duration time) {
    Run();
    timer_.advanceTo(timer_.now() + time);
    for (const auto& line : lines_) {
      if (timer_.now() - line->start >= kConnectionTime) line->may_be_cut = true;
    }
    Run();
  }

  void End() {
    for (current_ = 0; current_ < clients_.size(); ++current_) Resume();
    Run();
    for (current_ = 0; current_ < clients_.size(); ++current_) EndSending();
    Run();
    AnHonestClientIsServed();
    Wait(kConnectionTime);
    FUZZ_EXPECT(connections_.size() == 0, connections_.size());
    FUZZ_EXPECT(service_.answer_bytes() == 0, service_.answer_bytes());
    for (size_t i = 0; i < lines_.size(); ++i) {
      FUZZ_EXPECT(clients_[i] == nullptr || lines_[i]->has_ended, "connection ", i, " is open");
      CheckReceived(*lines_[i]);
    }
  }

 private:
  // HttpConnections makes the service of a connection as it adds it.
  void Add(kj::Own<kj::AsyncIoStream> stream, Line& line) {
    being_added_ = &line;
    connections_.Add(kj::heap<ServerEnd>(kj::mv(stream), line), PeerHost());
  }
  Client* client() { return clients_[current_].get(); }

  void AnHonestClientIsServed() {
    Line line;
    kj::TwoWayPipe pipe = kj::newTwoWayPipe();
    Client honest(kj::mv(pipe.ends[0]), line);
    Add(kj::mv(pipe.ends[1]), line);
    for (const auto& each : lines_) each->may_be_cut = true;
    honest.Send("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    honest.EndSending();
    Run();
    FUZZ_EXPECT(absl::StartsWith(line.received, "HTTP/1.1 200 OK\r\n") &&
                    absl::EndsWith(line.received, "\r\n\r\nserving\n"),
                line.received);
    Wait(kConnectionTime);  // The connection ends before `line` does.
  }

  kj::EventLoop loop_;
  kj::WaitScope wait_scope_{loop_};
  kj::TimerImpl timer_{kj::origin<kj::TimePoint>()};
  StatusService service_{[](observe::wire::Snapshot::Builder snapshot) { observe::FillInBusy({}, snapshot); },
                         {.snapshot_age = absl::InfiniteDuration(),
                          .connection_time = absl::Seconds(10),
                          .idle_time = absl::Seconds(1)}};
  std::vector<std::unique_ptr<Line>> lines_;
  Line* being_added_ = nullptr;
  kj::HttpServer server_{timer_, service_.headers(),
                         [this](kj::AsyncIoStream&) -> kj::Own<kj::HttpService> {
                           return kj::heap<Watched>(service_.OfConnection(timer_), *being_added_);
                         },
                         service_.Settings()};
  observe::HttpConnections connections_{server_, timer_, kConnectionsMax, kConnectionTime};
  std::vector<std::unique_ptr<Client>> clients_;
  size_t current_ = 0;
  size_t sent_ = 0;
};

void Play(Script script) {
  World world;
  while (!script.empty()) {
    const absl::string_view rest = Script(script).Rest();
    world.Send(script.Bytes(std::min(rest.find(kOrder), rest.size())));
    if (script.empty()) break;
    script.Byte();
    switch (script.Byte()) {
      case 0:  // The server reads what there is.
        world.Run();
        break;
      case 1:
        world.Connect();
        break;
      case 2:
        world.Choose(script.Byte());
        break;
      case 3: {  // The same again and again.
        const absl::string_view again = script.Bytes(script.Below(64) + 1);
        std::string bytes;
        for (uint32_t count = script.U16(); count > 0 && bytes.size() < kSentMax; --count)
          absl::StrAppend(&bytes, again);
        world.Send(bytes);
        break;
      }
      case 4:
        world.Wait(script.Byte() * 100 * kj::MILLISECONDS);
        break;
      case 5:
        world.EndSending();
        break;
      case 6:
        world.Pause();
        break;
      case 7:
        world.Resume();
        break;
      case 8:
        world.Drop();
        break;
      default:
        world.Send({&kOrder, 1});
    }
  }
  world.End();
}

std::string Request(absl::string_view line, absl::string_view headers = "Host: localhost\r\n",
                    absl::string_view body = "") {
  return absl::StrCat(line, "\r\n", headers, "\r\n", body);
}
// Order number `order` to the client.
std::string Order(char order, absl::string_view arguments = "") {
  return absl::StrCat(absl::string_view(&kOrder, 1), absl::string_view(&order, 1), arguments);
}
std::string Repeat(absl::string_view bytes, uint16_t count) {
  const char arguments[] = {static_cast<char>(bytes.size() - 1)};
  const char counts[] = {static_cast<char>(count & 0xff), static_cast<char>(count >> 8)};
  return Order(3, absl::StrCat(absl::string_view(arguments, 1), bytes, absl::string_view(counts, 2)));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  const std::string get = Request("GET / HTTP/1.1");
  const std::string methods = Request("GET /methods?from=1 HTTP/1.1");
  std::string in_pieces;
  for (char c : get) absl::StrAppend(&in_pieces, absl::string_view(&c, 1), Order(0));
  return {
      {"get", get},
      {"head", Request("HEAD /metrics HTTP/1.1")},
      {"pipelined", get + Request("HEAD /calls HTTP/1.1") + Request("GET /nothing HTTP/1.1") +
                        Request("GET /snapshot.json HTTP/1.1", "Host: localhost\r\nConnection: close\r\n") +
                        get},
      {"in_pieces", in_pieces},
      {"other_host",
       Request("GET / HTTP/1.1", "Host: evil.example\r\n") + Request("GET /healthz HTTP/1.1", "")},
      {"ipv6_host", Request("GET /healthz HTTP/1.1", "Host: [::1]:9090\r\n") +
                        Request("GET /healthz HTTP/1.1", "Host: 127.0.0.1:1\r\n")},
      {"two_hosts", Request("GET / HTTP/1.1", "Host: evil.example\r\nHost: localhost\r\n")},
      {"post", Request("POST / HTTP/1.1", "Host: localhost\r\nContent-Length: 5\r\n", "hello") + get},
      {"chunked", Request("GET / HTTP/1.1", "Host: localhost\r\nTransfer-Encoding: chunked\r\n",
                          "5\r\nhello\r\n0\r\n\r\n") +
                      get},
      {"chunk_of_ages", Request("GET / HTTP/1.1", "Host: localhost\r\nTransfer-Encoding: chunked\r\n",
                                "ffffffffffffffff\r\n") +
                            Repeat("x", 60000)},
      {"huge_header", "GET / HTTP/1.1\r\nX: " + Repeat("aaaaaaaaaaaaaaaa", 20000) + "\r\n\r\n"},
      {"pipelined_for_ever", Repeat(Request("GET /x HTTP/1.1"), 30000)},
      {"many_headers", "GET / HTTP/1.1\r\nHost: localhost\r\n" + Repeat("X: y\r\n", 30000) + "\r\n"},
      {"huge_body", Request("POST / HTTP/1.1", "Host: localhost\r\nContent-Length: 999999\r\n") +
                        Repeat("0123456789abcdef", 62000)},
      {"negative_length", Request("GET / HTTP/1.1", "Host: localhost\r\nContent-Length: -1\r\n")},
      {"huge_length",
       Request("GET / HTTP/1.1", "Host: localhost\r\nContent-Length: 99999999999999999999\r\n")},
      {"two_lengths",
       Request("GET / HTTP/1.1", "Host: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n") + get},
      {"length_and_chunked",
       Request("GET / HTTP/1.1", "Host: localhost\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n",
               "0\r\n\r\n") +
           get},
      {"absolute_form", Request("GET http://localhost/ HTTP/1.1") + Request("GET http://[ HTTP/1.1")},
      {"connect", Request("CONNECT localhost:80 HTTP/1.1")},
      {"options", Request("OPTIONS * HTTP/1.1") + Request("TRACE / HTTP/1.1")},
      {"upgrade", Request("GET / HTTP/1.1",
                          "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
                          "\x81\x05hello")},
      {"http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"http09", "GET /\r\n" + Order(5)},
      {"nuls", absl::StrCat(absl::string_view("GET /\0 HTTP/1.1\r\nHost: local\0host\r\n\r\n", 40), get)},
      {"bare_lf", "GET /healthz HTTP/1.1\nHost: localhost\n\n" + get},
      {"folded", Request("GET / HTTP/1.1", "Host: local\r\n host\r\nX: a\r\n\tb\r\n")},
      {"no_colon", Request("GET / HTTP/1.1", "Host localhost\r\n")},
      {"tls", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11)},
      {"slow", "GET / HTTP/1.1\r\nHost:" + Order(4, "\x63") + " localhost\r\n\r\n" + Order(4, "\x63")},
      {"does_not_read",
       Order(6) + get + methods + Order(0) + get + Order(4, "\x05") + Order(7) + Order(0) + get},
      {"half_close", methods + Order(5) + Order(0)},
      {"drops", methods + Order(8) + Order(0)},
      {"many_connections", get + Order(1) + "GET / HT" + Order(1) + Order(6) + methods + Order(1) + get +
                               Order(1) + Order(0) + Order(2, "\x01") + "TP/1.1\r\n\r\n" + Order(1) + get},
  };
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::Play(hawser::fuzz::Script(data, size));
  return 0;
}
