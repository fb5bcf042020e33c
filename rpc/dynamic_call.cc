#include "hawser/rpc/dynamic_call.h"

#include <capnp/any.h>

#include <optional>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/mutex.h"
#include "hawser/base/peer_text.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/read_limits.h"

namespace hawser {
namespace {

// $Hawser.idempotent of codegen/hawser/annotations.capnp, which is not for code that runs.
constexpr uint64_t kIdempotent = 0xb3d1f6c0a5e27c94;

// Names that are never destroyed: Method::name is static.
// Thread: any.
class Names {
 public:
  static Names& OfProcess() {
    static Names* const names = new Names;
    return *names;
  }

  const char* Keep(std::string name) {
    if (name.size() > kDynamicNameBytesMax) name.resize(kDynamicNameBytesMax);
    MutexLock lock(mutex_);
    if (const auto known = names_.find(name); known != names_.end()) return known->c_str();
    if (names_.size() >= kDynamicNamesMax) return "a method of a dynamic call";
    return names_.insert(std::move(name)).first->c_str();
  }

 private:
  Mutex mutex_;
  std::set<std::string> names_ ABSL_GUARDED_BY(mutex_);  // Does not move its elements.
};

absl::string_view ToView(kj::StringPtr text) { return {text.begin(), text.size()}; }

}  // namespace

std::string NameOf(capnp::InterfaceSchema interface) {
  // "examples/kv/kv.capnp:KeyValue": the folder is that of the machine that compiled the schema.
  absl::string_view name = ToView(interface.getProto().getDisplayName());
  const size_t file_end = name.rfind(':');
  const size_t slash = name.substr(0, file_end).rfind('/');
  if (file_end != name.npos && slash != name.npos) name.remove_prefix(slash + 1);
  return EscapePeerText(name);
}

Method MethodOf(capnp::InterfaceSchema::Method method) {
  bool idempotent = false;
  for (const auto annotation : method.getProto().getAnnotations()) {
    if (annotation.getId() == kIdempotent) idempotent = true;
  }
  const capnp::InterfaceSchema interface = method.getContainingInterface();
  return {interface.getProto().getId(), method.getOrdinal(),
          Names::OfProcess().Keep(
              absl::StrCat(NameOf(interface), ".", EscapePeerText(ToView(method.getProto().getName())))),
          idempotent};
}

// ---- PendingDynamicCall

absl::StatusOr<Reply<capnp::DynamicStruct>> PendingDynamicCall::Wait() {
  Take();
  internal::CallResult result = call_.Wait();
  return Typed(std::move(result.message), result.limits, results_);
}

absl::StatusOr<Reply<capnp::DynamicStruct>> PendingDynamicCall::Typed(
    absl::StatusOr<transport::IncomingMessagePtr>&& result, const ReadLimits& limits,
    capnp::StructSchema results) {
  if (!result.ok()) return std::move(result).status();
  capnp::DynamicStruct::Reader reader;
  absl::Status status = internal::CatchMalformed(
      [&] { reader = internal::Root(**result, limits).getAs<capnp::DynamicStruct>(results); });
  if (!status.ok()) return status;
  return absl::StatusOr<Reply<capnp::DynamicStruct>>(absl::in_place, *std::move(result), reader);
}

void PendingDynamicCall::Take() {
  if (!call_ || std::exchange(taken_, true)) [[unlikely]] {
    internal::Misused("Wait() or Then() twice on one PendingDynamicCall, or on one that was moved from",
                      call_ ? call_.method().name : nullptr);
  }
}

// ---- DynamicCall

absl::StatusOr<DynamicCall> DynamicCall::Create(const std::shared_ptr<Channel>& channel,
                                                capnp::InterfaceSchema::Method method,
                                                const CallOptions& options) {
  std::optional<DynamicCall> call;
  const absl::Status status = internal::CatchMalformed([&] {
    const Method of_wire = MethodOf(method);
    const capnp::StructSchema params = method.getParamType();
    const capnp::StructSchema results = method.getResultType();
    call.emplace(DynamicCall(internal::NewCall(channel, of_wire, options), of_wire.name, params, results));
  });
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema of the method that was to be called cannot be used: ", status.message()));
  }
  return *std::move(call);
}

DynamicCall::DynamicCall(internal::CallHandle call, const char* method_name, capnp::StructSchema params,
                         capnp::StructSchema results)
    : call_(std::move(call)),
      method_name_(method_name),
      results_(results),
      request_(call_.request().builder().initRoot<capnp::DynamicStruct>(params)) {}

absl::Status DynamicCall::Attach(capnp::DynamicStruct::Builder into, kj::StringPtr name, Buffer buffer) {
  auto owner = std::make_shared<Buffer>(std::move(buffer));
  return Attach(into, name, owner->reader(), owner);
}

absl::Status DynamicCall::Attach(capnp::DynamicStruct::Builder into, kj::StringPtr name,
                                 capnp::Data::Reader bytes, std::shared_ptr<const void> owner) {
  CheckUnsent();
  absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("what was attached to a call of ", method_name_, " goes into no field \"",
                   EscapePeerText(ToView(name)), "\" of Data: there is none of that name and type"));
  const absl::Status status = internal::CatchMalformed([&] {
    KJ_IF_MAYBE (field, into.getSchema().findFieldByName(name)) {
      if (field->getProto().isSlot() && field->getType().isData()) {
        const uint32_t index = field->getProto().getSlot().getOffset();
        // Before the field is changed: the struct may have been made by another version of the schema.
        if (index >= into.as<capnp::AnyStruct>().getPointerSection().size()) return;
        into.clear(*field);  // Chooses it, if it is of a union.
        auto pointers = into.as<capnp::AnyStruct>().getPointerSection();
        pointers[index].adopt(call_.request().Attach(bytes, std::move(owner)));
        wrong = absl::OkStatus();
      }
    }
  });
  return status.ok() ? wrong : status;
}

PendingDynamicCall DynamicCall::Send() {
  CheckUnsent();
  call_.Send();
  return PendingDynamicCall(std::move(call_), results_);
}

}  // namespace hawser
