// What is inside of a message: Cap'n Proto segments as rpc/ reads them, the status of a failed call, and
// envelopes.
#include <capnp/any.h>

#include <memory>

#include "absl/status/status.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/wire/message.h"

namespace hawser::fuzz {
namespace {

using transport::IncomingMessagePtr;
using transport::MessagePool;
using transport::OutgoingMessagePtr;

constexpr size_t kPoolBytes = 16 << 20;
constexpr size_t kTraversalBytes = 64 << 10;  // In place of the 8 MiB of rpc/, so that the limit is met.

std::shared_ptr<MessagePool> NewPool(MessagePool::CapnpRoad road) {
  auto* const network = new sim::Network(sim::NetworkOptions());
  return MessagePool::Create(
      std::make_shared<transport::BufferPool>(std::make_shared<sim::SimFabric>(*network, 1),
                                              transport::BufferPoolOptions{.limit_bytes = kPoolBytes}),
      road);
}

// Never destroyed, and used by every run: messages leave nothing behind but buffers.
MessagePool& Pool() {
  static auto* const pool = new std::shared_ptr<MessagePool>(NewPool(MessagePool::CapnpRoad::kFast));
  return **pool;
}
MessagePool& PublicPool() {
  static auto* const pool = new std::shared_ptr<MessagePool>(NewPool(MessagePool::CapnpRoad::kPublic));
  return **pool;
}

// `body` as the segments of a message that came: as many as `cuts` says, each in memory of its own, at the
// end of which a sanitizer sees every byte too many.
struct Received {
  Received(absl::string_view body, Script cuts, MessagePool& pool = Pool()) : message(pool.NewIncoming()) {
    body = body.substr(0, body.size() / 8 * 8);
    for (uint32_t count = 1 + cuts.Below(4); count > 0; --count) {
      const size_t bytes = count == 1 ? body.size() : std::min<size_t>(cuts.Byte() * 8u, body.size());
      segments.push_back(std::make_unique<ExactCopy>(body.substr(0, bytes)));
      body.remove_prefix(bytes);
      message->AddSegment(segments.back()->data(), static_cast<uint32_t>(bytes));
    }
  }

  std::vector<std::unique_ptr<ExactCopy>> segments;
  IncomingMessagePtr message;  // Goes first.
};

// Everything that a handler could come to: each pointer once a way that leads to it.
struct Walk {
  void Struct(capnp::AnyStruct::Reader content, int depth) {
    words += content.getDataSection().size() / sizeof(capnp::word);
    for (const uint8_t byte : content.getDataSection()) sum += byte;
    for (const auto inner : content.getPointerSection()) Pointer(inner, depth + 1);
  }

  void Pointer(capnp::AnyPointer::Reader pointer, int depth) {
    FUZZ_EXPECT(depth <= 1 + ReadLimits().nesting_max, "deeper than the nesting limit");
    if (pointer.isNull()) return;
    if (pointer.isStruct()) {
      return Struct(pointer.getAs<capnp::AnyStruct>(), depth);
    }
    if (!pointer.isList()) return;
    const auto list = pointer.getAs<capnp::AnyList>();
    switch (list.getElementSize()) {
      case capnp::ElementSize::POINTER:
        for (const auto inner : list.as<capnp::List<capnp::AnyPointer>>()) Pointer(inner, depth + 1);
        break;
      case capnp::ElementSize::INLINE_COMPOSITE:
        for (const auto content : list.as<capnp::List<capnp::AnyStruct>>()) {
          for (const uint8_t byte : content.getDataSection()) sum += byte;
          for (const auto inner : content.getPointerSection()) Pointer(inner, depth + 1);
          ++words;
        }
        break;
      default: {
        const auto bytes = list.getRawBytes();
        for (const uint8_t byte : bytes) sum += byte;
        words += bytes.size() / sizeof(capnp::word);
      }
    }
  }
  uint64_t words = 0;
  uint64_t sum = 0;
};

capnp::ReaderOptions Limits(const transport::IncomingMessage& message) {
  return {.traversalLimitInWords =
              (message.body_bytes() * ReadLimits().traversal_factor + kTraversalBytes) / sizeof(capnp::word),
          .nestingLimit = ReadLimits().nesting_max};
}

capnp::AnyPointer::Reader Root(transport::IncomingMessage& message) {
  return message.reader(Limits(message)).getRoot<capnp::AnyPointer>();
}

// As a handler reads its request.
struct RootStruct {
  RootStruct(absl::string_view body, const Script& cuts, MessagePool& pool) {
    Received received(body, cuts, pool);
    status = internal::CatchMalformed([&] {
      walk.Struct(capnp::AnyStruct::Reader(received.message->ReadRootStruct(Limits(*received.message))), 0);
    });
  }
  Walk walk;
  absl::Status status;
};

void CheckReading(absl::string_view body, const Script& cuts) {
  Walk walk;
  // Either in full, or an exception that ends here; and no more of it than the limit allows.
  Received received(body, cuts);
  const absl::Status status = internal::CatchMalformed([&] { walk.Pointer(Root(*received.message), 0); });
  FUZZ_EXPECT(status.ok() || absl::IsDataLoss(status) || absl::IsResourceExhausted(status),
              status.ToString());
  FUZZ_EXPECT(walk.words <= (kTraversalBytes + ReadLimits().traversal_factor * body.size()) / 8, walk.words);

  // A handler's way to say it.
  Received again(body, cuts, PublicPool());
  Walk second;
  absl::Status answer;
  try {
    second.Pointer(Root(*again.message), 0);
  } catch (...) {
    answer = internal::StatusOfException("the handler");
  }
  FUZZ_EXPECT(answer.ok() == status.ok() && second.sum == walk.sum, answer.ToString());
  FUZZ_EXPECT(answer.ok() || absl::IsInvalidArgument(answer) || absl::IsResourceExhausted(answer),
              answer.ToString());

  const RootStruct fast(body, cuts, Pool()), by_public_road(body, cuts, PublicPool());
  FUZZ_EXPECT(fast.status == by_public_road.status && fast.walk.sum == by_public_road.walk.sum &&
                  fast.walk.words == by_public_road.walk.words,
              fast.status.ToString(), ", and ", by_public_road.status.ToString());
}

// A status said again.
IncomingMessagePtr Loop(const absl::Status& status, OutgoingMessagePtr& kept) {
  kept = Pool().NewOutgoing();
  internal::EncodeStatus(status, *kept);
  IncomingMessagePtr message = Pool().NewIncoming();
  for (const auto& segment : kept->Finish()) message->AddSegment(segment.address, segment.length_bytes);
  return message;
}

void CheckStatus(absl::string_view body, const Script& cuts, uint8_t code_byte) {
  const auto code = static_cast<absl::StatusCode>(1 + code_byte % 16);
  Received received(body, cuts);
  const absl::Status status = internal::DecodeStatus(code, *received.message);
  FUZZ_EXPECT(status.code() == code, status.ToString());
  FUZZ_EXPECT(status.message().size() <= internal::kStatusMessageMax + 3, status.message().size());
  size_t details = 0, bytes = 0;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (url == "type.hawser/call") return;  // The receiver's own note that the text is not about its call.
    ++details;
    bytes += url.size() + value.size();
  });
  FUZZ_EXPECT(details <= internal::kStatusDetailsMax, details);
  // Only this side decides whether a call was sent.
  FUZZ_EXPECT(hawser::WasSent(status));

  OutgoingMessagePtr kept;
  IncomingMessagePtr message = Loop(status, kept);
  const absl::Status again = internal::DecodeStatus(code, *message);
  message.reset();
  if (status.message().size() <= internal::kStatusMessageMax && bytes <= internal::kStatusDetailBytesMax) {
    FUZZ_EXPECT(again == status, status.ToString(), " became ", again.ToString());
  }
}

void CheckEnvelopes(absl::string_view bytes) {
  const ExactCopy copy(bytes);
  const absl::Span<const uint8_t> envelope(copy.data(), copy.size());
  if (const auto request = internal::DecodeRequestEnvelope(envelope); request.ok()) {
    const auto again = internal::Encode(*request);
    FUZZ_EXPECT(View(absl::MakeConstSpan(again)) == bytes, "a field was accepted and dropped");
  } else {
    FUZZ_EXPECT(absl::IsInvalidArgument(request.status()));
  }
  if (const auto response = internal::DecodeResponseEnvelope(envelope); response.ok()) {
    const auto again = internal::Encode(*response);
    FUZZ_EXPECT(bytes.size() == again.size());
    // A code of a later version is Unknown.
    FUZZ_EXPECT(View(absl::MakeConstSpan(again)).substr(1) == bytes.substr(1));
    FUZZ_EXPECT(again[0] == static_cast<uint8_t>(bytes[0]) ||
                (again[0] == static_cast<uint8_t>(absl::StatusCode::kUnknown) &&
                 static_cast<uint8_t>(bytes[0]) > static_cast<uint8_t>(absl::StatusCode::kUnauthenticated)));
  } else {
    FUZZ_EXPECT(absl::IsDataLoss(response.status()));
  }
}

void CheckMetadata(absl::string_view bytes) {
  const ExactCopy copy(bytes);
  const absl::StatusOr<MetadataView> view = MetadataView::Parse(View({copy.data(), copy.size()}));
  if (!view.ok()) {
    FUZZ_EXPECT(absl::IsInvalidArgument(view.status()));
    return;
  }
  // What was taken from a peer can be sent, and is the same then.
  Metadata built;
  for (const MetadataView::Pair& pair : *view) built.Add(pair.key, pair.value);
  FUZZ_EXPECT(built.status().ok(), built.status().ToString());
  const absl::string_view again = built.view().bytes();
  FUZZ_EXPECT(again == view->bytes());
  FUZZ_EXPECT(again == bytes.substr(0, again.size()) && bytes.size() < again.size() + 8);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const std::string head = std::string("\0\0\0\0\0\0", 6);  // One segment, one code; see below.
  const auto add = [&](const std::string& name, OutgoingMessagePtr message) {
    std::string seed = head;
    for (const auto& segment : message->Finish()) {
      seed.append(reinterpret_cast<const char*>(segment.address), segment.length_bytes);
    }
    seeds.emplace_back(name, seed);
  };
  OutgoingMessagePtr message = Pool().NewOutgoing();
  absl::Status status = absl::NotFoundError("no such key");
  status.SetPayload("type.hawser/example", absl::Cord("a detail"));
  status.SetPayload("type.hawser/other", absl::Cord(""));
  internal::EncodeStatus(status, *message);
  add("status", std::move(message));
  // More details than are taken, each of its own name.
  message = Pool().NewOutgoing();
  auto many = message->builder().initRoot<capnp::AnyPointer>().initAsAnyStruct(0, 2).getPointerSection();
  auto details = many[1].initAsListOfAnyStruct(0, 2, 2 * internal::kStatusDetailsMax);
  for (unsigned i = 0; i < details.size(); ++i) {
    details[i].getPointerSection()[0].setAs<capnp::Text>(absl::StrCat("type/", i));
  }
  add("many_details", std::move(message));
  message = Pool().NewOutgoing();
  message->builder().initRoot<capnp::AnyPointer>().initAs<capnp::Data>(40);
  add("data", std::move(message));
  message = Pool().NewOutgoing();
  auto nest = message->builder().initRoot<capnp::AnyPointer>();
  for (int i = 0; i < 10; ++i) nest = nest.initAsAnyStruct(1, 1).getPointerSection()[0];
  nest.initAs<capnp::List<uint32_t>>(5);
  add("nest", std::move(message));
  const auto request = internal::Encode(internal::RequestEnvelope{0xb5f2a9c07d1e4683, 2});
  seeds.emplace_back("request_envelope", head + std::string(View(absl::MakeConstSpan(request))));
  const auto response = internal::Encode(internal::ResponseEnvelope{absl::StatusCode::kUnavailable, true});
  seeds.emplace_back("response_envelope", head + std::string(View(absl::MakeConstSpan(response))));
  const Metadata metadata = {{"tenant", "blue"}, {"trace.id", std::string(20, '\0')}, {"tenant", ""}};
  seeds.emplace_back("metadata", absl::StrCat(head, metadata.view().bytes()));
  return seeds;
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hawser::fuzz;
  Script script(data, size);
  const uint8_t code = script.Byte();
  const absl::string_view cuts = script.Bytes(5);
  const Script where(reinterpret_cast<const uint8_t*>(cuts.data()), cuts.size());
  const absl::string_view body = script.Rest();
  CheckReading(body, where);
  CheckStatus(body, where, code);
  CheckEnvelopes(body.substr(0, std::min<size_t>(body.size(), 24)));
  CheckMetadata(body);
  return 0;
}
