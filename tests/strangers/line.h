#ifndef HAWSER_TESTS_STRANGERS_LINE_H_
#define HAWSER_TESTS_STRANGERS_LINE_H_

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/tests/strangers/tls_records.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::strangers {

// One TCP connection to a server, with or without TLS, on which greeting and frames are written by hand
// (rpc/PROTOCOL.md, "Over TCP"). It keeps the counts that make a frame valid. It checks nothing: a Stranger
// chooses what to send, and when.
// Thread:   one.
// Lifetime: the observer outlives it. No method of the observer runs inside Dial(), Send...() or Close().
// Failure:  at the end of the connection, whatever its cause, it calls OnEnd() once.
class Line {
 public:
  class Observer {
   public:
    virtual void OnConnected() = 0;
    // `accepted`: the server's greeting was an accept; otherwise a reject.
    virtual void OnGreeting(bool accepted) = 0;
    // A complete SEND of the server has arrived.
    virtual void OnMessage(const transport::Header& header,
                           absl::Span<const transport::TableEntry> table) = 0;
    // The server wants to READ; it is in reads().
    virtual void OnReadRequest() = 0;
    // Bytes of a READ response for us. They are dropped.
    virtual void OnReadData(size_t bytes) = 0;
    // The kernel has all bytes that were to be sent.
    virtual void OnSent() = 0;
    virtual void OnEnd() = 0;

   protected:
    ~Observer() = default;
  };

  // A READ request of the server.
  struct Read {
    uint32_t number = 0;
    uint32_t length_bytes = 0;
    uint32_t sent_bytes = 0;
  };

  explicit Line(Observer& observer) : observer_(observer) {}
  ~Line() { Close(); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // From the next Dial() on, with at most so many bytes in a record.
  void SpeakTls(std::shared_ptr<SSL_CTX> context, size_t record_bytes) {
    tls_context_ = std::move(context);
    record_bytes_ = record_bytes;
  }
  // False: the system has no socket or no port left. `from`: the source address, any port.
  bool Dial(const sockaddr_in& to, const in_addr& from);
  bool open() const { return fd_ >= 0; }
  // -1: not open.
  int fd() const { return fd_; }

  // Abortive (RST), or orderly (FIN), which leaves the port in TIME_WAIT for a minute.
  void Close(bool abortive = true);

  // ---- Sending. There is no limit: see unsent_bytes().

  void SendBytes(absl::string_view bytes);
  void SendFrame(fabric::FrameHeader header, absl::string_view payload = {});
  void SendMessage(absl::string_view message);
  // Answers the oldest READ with at most so many zeros, in one fragment. Returns their number.
  uint32_t ServeRead(uint32_t bytes_max);
  void SendReadRequest(const transport::TableEntry& entry, uint32_t length_bytes);
  void SendAcknowledgement() { SendFrame({}); }

  // With what TLS adds.
  size_t unsent_bytes() const { return out_.size() - sent_; }
  const std::deque<Read>& reads() const { return reads_; }

  // ---- For the crowd

  // With false, arriving bytes stay in the kernel's buffer.
  void set_reads_socket(bool reads) { reads_socket_ = reads; }
  uint32_t wanted_events() const;  // See epoll(7).
  // The events and the socket that epoll watches. The crowd sets them.
  uint32_t watched_events = 0;
  int watched_fd = -1;
  void OnEvents(uint32_t events);

 private:
  void Receive();
  bool ParseGreeting();
  bool ParseFrame();
  void Flush();
  void End();

  Observer& observer_;
  std::shared_ptr<SSL_CTX> tls_context_;  // Null: no TLS.
  size_t record_bytes_ = 0;
  std::unique_ptr<TlsRecords> tls_;
  int fd_ = -1;
  bool connecting_ = false;
  bool greeted_ = false;
  bool reads_socket_ = true;
  uint32_t executed_ = 0;  // Requests of the server executed so far.
  std::string in_;
  size_t dropping_ = 0;  // Bytes of a READ response that have not arrived yet.
  std::string out_;
  size_t sent_ = 0;
  std::deque<Read> reads_;
};

}  // namespace hawser::strangers

#endif  // HAWSER_TESTS_STRANGERS_LINE_H_
