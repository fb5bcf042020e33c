#include "hawser/transport/fabric/tcp/frame_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hawser/transport/fabric/tcp/atomic.h"

namespace hawser::fabric {
namespace {

// The limit of one call, so that the other queue pairs get their turns.
constexpr size_t kWriteBytesMax = 1024 * 1024;

}  // namespace

void FrameWriter::DropCopied(InlineFramesStock& stock) {
  if (inline_ == nullptr) return;
  inline_->Clear();
  stock.Return(inline_);
  doorbell_rung_ = false;
}

FrameWriter::Result FrameWriter::WriteBatches(Stream& stream, bool with_answers, SendBatch& batch,
                                              InlineFramesStock& stock, TcpFabricCounters* counters) {
  size_t written_bytes = 0;
  while (true) {
    // It has waited for the rest of a frame.
    if (copied_is_next()) {
      if (!WriteInline(stream, stock, counters)) return Stopped(errno);
      if (!HasOutput() && !receive_queue_.ack_due() && !stream.has_unsent()) return Result::kDone;
    }
    const bool ack_was_due = receive_queue_.ack_due();
    batch.Clear();
    Fill(with_answers, batch);
    if (batch.empty()) return stream.has_unsent() ? Result::kBlocked : Result::kDone;

    const ssize_t sent = Send(stream, batch.segments(), batch.segment_count(), counters);
    NoteWritten(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    if (sent == static_cast<ssize_t>(batch.bytes())) {
      partial_sent_ = 0;
      written_bytes += sent;
      if (written_bytes < kWriteBytesMax) continue;
      return HasOutput() || stream.has_unsent() ? Result::kBlocked : Result::kDone;
    }
    const int error = sent < 0 ? errno : EAGAIN;
    TakeBack(batch, std::max<ssize_t>(sent, 0), ack_was_due);
    return Stopped(error);
  }
}

FrameWriter::Result FrameWriter::Stopped(int error) {
  if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM) return Result::kBlocked;
  error_ = error;
  return Result::kBroken;
}

// The stream has taken so much of the batch.
void FrameWriter::NoteWritten(size_t sent_bytes) {
  if (batch_transfers_end_ != 0 && sent_bytes != 0) {
    transfers_end_ = written_bytes_ + std::min(batch_transfers_end_, sent_bytes);
  }
  written_bytes_ += sent_bytes;
}

void FrameWriter::Fill(bool with_answers, SendBatch& batch) {
  batch_transfers_end_ = 0;
  if (partial_sent_ > 0) AppendRest(batch);
  if (doorbell_rung_) return;  // What was copied comes next.
  const size_t rest = batch.frame_count();
  const bool after_push =
      rest > 0 && partial_owner_ == SendBatch::Owner::kRequester && partial_header_.kind == FrameKind::kPush;
  if (with_answers && (after_push || answer_is_next_)) AppendAnswer(batch);
  AppendRequests(with_answers, batch);
  if (with_answers) {
    answer_is_next_ = false;
    while (AppendAnswer(batch)) continue;
    if (receive_queue_.nak_due() && !receive_queue_.has_answer() && batch.HasRoom()) {
      AppendHeaderOnly(SendBatch::Owner::kNak, receive_queue_.Nak(), batch);
      receive_queue_.set_nak_due(false);
    }
  }
  if (batch.frame_count() == rest && receive_queue_.ack_due()) {
    AppendHeaderOnly(SendBatch::Owner::kAck, {.kind = FrameKind::kAck}, batch);
  }
  if (batch.frame_count() > rest) receive_queue_.set_ack_due(false);
}

void FrameWriter::AppendRequests(bool with_answers, SendBatch& batch) {
  for (const TcpSendQueue::Request* request;
       batch.HasRoom() && (request = send_queue_.NextToSend()) != nullptr;) {
    FrameHeader header = send_queue_.HeaderOf(*request);
    header.acknowledged = receive_queue_.executed();
    if (header.kind == FrameKind::kSend && request->sge_count == 1 &&
        header.length_bytes <= SendBatch::kCopyMax) [[likely]] {
      batch.AppendSmallFrame(SendBatch::Owner::kRequester, send_queue_.sent(), send_queue_.reads_sent(),
                             header, request->segments[0].address);
      send_queue_.MarkSent();
      continue;
    }
    if (IsAtomic(header.kind)) header.length_bytes = OperandBytes(header.kind);
    batch.BeginFrame(SendBatch::Owner::kRequester, send_queue_.sent(), send_queue_.reads_sent());
    batch.AppendHeader(header);
    if (IsAnswered(request->opcode)) {
      if (IsAtomic(request->opcode)) batch.AppendCopy(request->operands(), header.length_bytes);
    } else {
      for (uint8_t i = 0; i < request->sge_count; ++i) {
        batch.Append(request->segments[i].address, request->segments[i].length_bytes);
      }
    }
    batch.EndFrame();
    send_queue_.MarkSent();
    // Small requests overtake the answers to READs. Pushes alternate with those answers: otherwise two peers
    // that push in reply to each other's pushes could delay the answers forever.
    if (header.kind == FrameKind::kPush) {
      batch_transfers_end_ = batch.bytes();
      if (with_answers) AppendAnswer(batch);
    }
  }
}

// Appends a fragment of an answer to a READ. False: there is none, or no room.
bool FrameWriter::AppendAnswer(SendBatch& batch) {
  if (!batch.HasRoom() || !receive_queue_.has_answer()) return false;
  const uint8_t* data;
  FrameHeader header = receive_queue_.NextFragment(&data);
  const bool in_words = receive_queue_.answers_in_words();
  if (in_words && !batch.HasRoomForCopy(header.length_bytes)) return false;
  header.acknowledged = receive_queue_.executed();
  batch.BeginFrame(SendBatch::Owner::kReadAnswer, receive_queue_.answers_done(),
                   receive_queue_.answer_offset());
  batch.AppendHeader(header);
  in_words ? batch.AppendWords(data, header.length_bytes) : batch.Append(data, header.length_bytes);
  batch.EndFrame();
  batch_transfers_end_ = batch.bytes();
  receive_queue_.MarkFragmentSent();
  return true;
}

void FrameWriter::AppendHeaderOnly(SendBatch::Owner owner, FrameHeader header, SendBatch& batch) {
  header.acknowledged = receive_queue_.executed();
  batch.BeginFrame(owner, 0, 0);
  batch.AppendHeader(header);
  batch.EndFrame();
}

void FrameWriter::AppendRest(SendBatch& batch) {
  const size_t header_sent = std::min<size_t>(partial_sent_, sizeof(FrameHeader));
  size_t skip = partial_sent_ - header_sent;
  const auto append_header = [&] {
    batch.AppendCopy(reinterpret_cast<const uint8_t*>(&partial_header_) + header_sent,
                     sizeof(FrameHeader) - header_sent);
  };
  switch (partial_owner_) {
    case SendBatch::Owner::kRequester: {
      const TcpSendQueue::Request& request = send_queue_.Sending();
      batch.BeginFrame(partial_owner_, send_queue_.sent(), send_queue_.reads_sent());
      append_header();
      if (IsAtomic(request.opcode)) {
        batch.AppendCopy(request.operands() + skip, partial_header_.length_bytes - skip);
      }
      for (uint8_t i = 0; i < request.sge_count && !IsAnswered(request.opcode); ++i) {
        const TcpSendQueue::Request::Segment& segment = request.segments[i];
        const size_t skipped = std::min<size_t>(skip, segment.length_bytes);
        skip -= skipped;
        batch.Append(segment.address + skipped, segment.length_bytes - skipped);
      }
      send_queue_.MarkSent();
      break;
    }
    case SendBatch::Owner::kReadAnswer: {
      const uint8_t* data;
      receive_queue_.NextFragment(&data);
      batch.BeginFrame(partial_owner_, receive_queue_.answers_done(), receive_queue_.answer_offset());
      append_header();
      if (receive_queue_.answers_in_words()) {
        const size_t cut = CutWordBytes(data);
        batch.AppendCopy(receive_queue_.cut_word(), cut);
        batch.AppendWords(data + skip + cut, partial_header_.length_bytes - skip - cut);
      } else {
        batch.Append(data + skip, partial_header_.length_bytes - skip);
      }
      receive_queue_.MarkFragmentSent();
      break;
    }
    case SendBatch::Owner::kAck:
    case SendBatch::Owner::kNak:
      batch.BeginFrame(partial_owner_, 0, 0);
      append_header();
      if (partial_owner_ == SendBatch::Owner::kNak) receive_queue_.set_nak_due(false);
      break;
  }
  batch.EndFrame();
  if (partial_owner_ == SendBatch::Owner::kReadAnswer ||
      (partial_owner_ == SendBatch::Owner::kRequester && partial_header_.kind == FrameKind::kPush)) {
    batch_transfers_end_ = batch.bytes();
  }
}

// The socket took only the first `sent_bytes`. Finds the frame in which they end, and resets its owner's
// cursor, and the cursors of all later frames, to their values before those frames.
void FrameWriter::TakeBack(const SendBatch& batch, size_t sent_bytes, bool ack_was_due) {
  size_t first = 0;
  for (; sent_bytes >= batch.frame(first).bytes; ++first) sent_bytes -= batch.frame(first).bytes;

  const SendBatch::Frame& cut = batch.frame(first);
  if (cut.header == nullptr) {
    partial_sent_ += static_cast<uint32_t>(sent_bytes);  // Still the same frame; no new header was sent.
    receive_queue_.set_ack_due(ack_was_due);
  } else {
    partial_sent_ = static_cast<uint32_t>(sent_bytes);
    partial_owner_ = cut.owner;
    answer_is_next_ = cut.owner == SendBatch::Owner::kReadAnswer && sent_bytes == 0;
    std::memcpy(&partial_header_, cut.header, sizeof(partial_header_));
    // If no new header was sent, the acknowledgement is still due.
    const bool first_header = first == 0 || (first == 1 && batch.frame(0).header == nullptr);
    if (first_header && sent_bytes == 0) receive_queue_.set_ack_due(ack_was_due);
  }

  // Goes backwards, so that the first frame of each owner sets the cursor last.
  for (size_t i = batch.frame_count(); i-- > first;) {
    const SendBatch::Frame& frame = batch.frame(i);
    switch (frame.owner) {
      case SendBatch::Owner::kRequester:
        send_queue_.Rewind(frame.cursor[0], frame.cursor[1]);
        break;
      case SendBatch::Owner::kReadAnswer:
        receive_queue_.RewindAnswers(frame.cursor[0], frame.cursor[1]);
        break;
      case SendBatch::Owner::kNak:
        receive_queue_.set_nak_due(true);
        break;
      case SendBatch::Owner::kAck:
        break;  // ack_due() was restored above.
    }
  }
  if (cut.owner != SendBatch::Owner::kReadAnswer || !receive_queue_.answers_in_words()) return;
  // The owner may have changed the word since: what follows of it is what was copied with its front.
  const uint8_t* data;
  receive_queue_.NextFragment(&data);
  const uint8_t* const copied = (cut.header != nullptr ? cut.header : batch.staging()) + sent_bytes;
  std::memcpy(receive_queue_.cut_word(), copied, CutWordBytes(data));
}

// How many bytes of `fragment`, of which a part is on the wire, belong to a word that has begun to cross.
size_t FrameWriter::CutWordBytes(const uint8_t* fragment) const {
  if (partial_sent_ <= sizeof(FrameHeader)) return 0;
  const size_t sent = partial_sent_ - sizeof(FrameHeader);
  return std::min(RestOfWord(fragment + sent), partial_header_.length_bytes - sent);
}

}  // namespace hawser::fabric
