#include "hawser/tests/strangers/line.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hawser/transport/fabric/tcp/greeting.h"

namespace hawser::strangers {
namespace {

using fabric::FrameHeader;
using fabric::FrameKind;

constexpr size_t kReceiveBytes = 256 << 10;

constexpr std::array<char, fabric::kReadFragmentMax> kZeros = {};

}  // namespace

bool Line::Dial(const sockaddr_in& to, const in_addr& from) {
  Close();
  connecting_ = true;
  greeted_ = false;
  reads_socket_ = true;
  executed_ = 0;
  dropping_ = sent_ = 0;
  in_.clear();
  out_.clear();
  reads_.clear();
  tls_ = tls_context_ == nullptr ? nullptr : std::make_unique<TlsRecords>(*tls_context_, record_bytes_);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return false;
  // The kernel chooses the port when connecting, so that each address can have as many connections as ports.
  const int on = 1;
  setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
  sockaddr_in source = {};
  source.sin_family = AF_INET;
  source.sin_addr = from;
  if (bind(fd_, reinterpret_cast<sockaddr*>(&source), sizeof(source)) == 0 &&
      (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 || errno == EINPROGRESS)) {
    return true;
  }
  Close();
  return false;
}

void Line::Close(bool abortive) {
  if (fd_ < 0) return;
  if (abortive) {
    const linger now = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  close(fd_);
  fd_ = -1;
}

// ---- Sending

void Line::SendBytes(absl::string_view bytes) {
  if (tls_ != nullptr) return tls_->Send(bytes, out_);
  out_.append(bytes.data(), bytes.size());
}

void Line::SendFrame(FrameHeader header, absl::string_view payload) {
  header.acknowledged = executed_;
  SendBytes({reinterpret_cast<const char*>(&header), sizeof(header)});
  SendBytes(payload);
}

void Line::SendMessage(absl::string_view message) {
  SendFrame({.kind = FrameKind::kSend, .length_bytes = static_cast<uint32_t>(message.size())}, message);
}

uint32_t Line::ServeRead(uint32_t bytes_max) {
  if (reads_.empty()) return 0;
  Read& read = reads_.front();
  const uint32_t bytes = std::min({bytes_max, read.length_bytes - read.sent_bytes, fabric::kReadFragmentMax});
  SendFrame({.kind = FrameKind::kReadResponse,
             .length_bytes = bytes,
             .key = read.number,
             .address = read.sent_bytes});
  SendBytes({kZeros.data(), bytes});
  read.sent_bytes += bytes;
  if (read.sent_bytes == read.length_bytes) reads_.pop_front();
  return bytes;
}

void Line::SendReadRequest(const transport::TableEntry& entry, uint32_t length_bytes) {
  SendFrame({.kind = FrameKind::kReadRequest,
             .length_bytes = length_bytes,
             .key = entry.rkey,
             .address = entry.address});
}

// ---- The socket

uint32_t Line::wanted_events() const {
  uint32_t events = 0;
  if (reads_socket_) events |= EPOLLIN;
  if (connecting_ || unsent_bytes() > 0) events |= EPOLLOUT;
  return events;
}

void Line::OnEvents(uint32_t events) {
  if (fd_ < 0) return;
  if (connecting_ && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return End();
    connecting_ = false;
    tls_ != nullptr ? tls_->Start(out_) : observer_.OnConnected();
  } else if ((events & (EPOLLERR | EPOLLHUP)) != 0 && !reads_socket_) {
    return End();
  } else if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    Receive();
  }
  if (fd_ >= 0 && !connecting_) Flush();
}

void Line::Receive() {
  static thread_local std::array<char, kReceiveBytes> staging;
  const ssize_t n = recv(fd_, staging.data(), staging.size(), 0);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return End();
  if (n < 0) return;
  absl::string_view arrived(staging.data(), static_cast<size_t>(n));
  std::string plain;
  if (tls_ != nullptr) {
    const bool was_up = tls_->is_up();
    if (!tls_->Receive(arrived, plain, out_)) return End();
    arrived = plain;
    if (!was_up && tls_->is_up()) observer_.OnConnected();
  }
  const size_t dropped = std::min(arrived.size(), dropping_);
  dropping_ -= dropped;
  if (dropped > 0) observer_.OnReadData(dropped);
  in_.append(arrived.data() + dropped, arrived.size() - dropped);
  while (fd_ >= 0 && (greeted_ ? ParseFrame() : ParseGreeting())) {
  }
}

// False: the greeting has not arrived completely.
bool Line::ParseGreeting() {
  if (in_.size() < fabric::kGreetingHeaderBytes) return false;
  const size_t size = fabric::kGreetingHeaderBytes + static_cast<uint8_t>(in_[11]);
  if (in_.size() < size) return false;
  const bool accepted = in_[10] == static_cast<char>(fabric::GreetingKind::kAccept);
  in_.erase(0, size);
  greeted_ = true;
  observer_.OnGreeting(accepted);
  return true;
}

bool Line::ParseFrame() {
  FrameHeader header;
  if (in_.size() < sizeof(header)) return false;
  std::memcpy(&header, in_.data(), sizeof(header));
  if (header.kind == FrameKind::kReadResponse) {
    const size_t here = std::min<size_t>(header.length_bytes, in_.size() - sizeof(header));
    dropping_ = header.length_bytes - here;
    in_.erase(0, sizeof(header) + here);
    if (here > 0) observer_.OnReadData(here);
    return true;
  }
  const size_t payload = header.kind == FrameKind::kSend ? header.length_bytes : 0;
  if (in_.size() < sizeof(header) + payload) return false;
  std::string message = in_.substr(sizeof(header), payload);
  in_.erase(0, sizeof(header) + payload);
  if (header.kind == FrameKind::kReadRequest) {
    reads_.push_back({executed_++, header.length_bytes, 0});
    observer_.OnReadRequest();
  } else if (header.kind == FrameKind::kSend) {
    ++executed_;
    if ((header.flags & fabric::kAckRequestedFlag) != 0) SendAcknowledgement();
    transport::ParsedMessage parsed;
    if (!Parse(reinterpret_cast<const uint8_t*>(message.data()), message.size(), parsed).ok()) return true;
    std::vector<transport::TableEntry> table;
    for (size_t i = 0; parsed.header.kind != transport::Kind::kControl && i < parsed.header.entries; ++i) {
      table.push_back(transport::DecodeTableEntry(parsed.table + i * transport::kTableEntryBytes));
    }
    observer_.OnMessage(parsed.header, table);
  }
  return true;
}

void Line::Flush() {
  if (unsent_bytes() == 0) return;
  const ssize_t n = send(fd_, out_.data() + sent_, unsent_bytes(), MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return End();
  if (n > 0) sent_ += static_cast<size_t>(n);
  if (unsent_bytes() > 0) return;
  out_.clear();
  sent_ = 0;
  if (tls_ == nullptr || tls_->is_up()) observer_.OnSent();
}

void Line::End() {
  Close();
  observer_.OnEnd();
}

}  // namespace hawser::strangers
