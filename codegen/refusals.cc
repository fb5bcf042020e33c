#include "hawser/codegen/refusals.h"

#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"
#include "hawser/codegen/capabilities.h"

namespace hawser::codegen {
namespace {

// StreamResult in /capnp/stream.capnp: what the compiler makes of `-> stream`.
constexpr uint64_t kStreamResult = 0x995f9a3377c0b16e;

}  // namespace

std::string Message(const Refusal& refusal) {
  return absl::StrCat(refusal.place, ": error: ", refusal.declared, " ", refusal.what, "\n  ",
                      refusal.instead, "\n");
}

std::vector<Refusal> Refusals::TakeThoseOfInterfaces() {
  std::vector<Refusal> taken, others;
  for (Refusal& refusal : all_) (refusal.interface != 0 ? taken : others).push_back(std::move(refusal));
  all_ = std::move(others);
  return taken;
}

void Refusals::Add(const std::string& declared, const std::string& what, const std::string& instead,
                   const std::string& line_of) {
  if (!lines_) lines_ = SourceLines::OfFile(path_);
  int line = lines_->Find(line_of.empty() ? declared : line_of);
  const std::string path = EscapePeerText(path_);
  std::string place = line == 0 ? path : absl::StrCat(path, ":", line);
  all_.push_back({about_, std::move(place), declared, what, instead});
}

void Refusals::Check(Node::Reader interface) {
  std::string name = nodes_.ScopedName(interface);
  if (interface.getIsGeneric()) {
    Add(name, "is generic: it, or a scope around it, has type parameters.",
        "On the wire a method has one type. Instead: declare one interface for each type that you need, or "
        "use "
        "AnyPointer or Data for what varies. Generic structs are fine where their parameters are bound.");
    return;
  }
  for (auto superclass : interface.getInterface().getSuperclasses()) {
    Node::Reader node = nodes_.Get(superclass.getId());
    if (!node.getIsGeneric()) continue;
    Add(name, absl::StrCat("extends ", nodes_.ScopedName(node), ", which is generic."),
        "On the wire a method has one type. Instead: declare the methods that you need of it here, with "
        "their types.");
  }
  for (auto method : interface.getInterface().getMethods()) {
    CheckMethod(absl::StrCat(name, ".", method.getName().cStr()), method);
  }
}

void Refusals::CheckMethod(const std::string& name, capnp::schema::Method::Reader method) {
  if (method.getImplicitParameters().size() > 0) {
    Add(name,
        absl::StrCat("is generic: it has the type parameter ",
                     method.getImplicitParameters()[0].getName().cStr(), "."),
        "On the wire a method has one type. Instead: declare one method for each type that you need, or use "
        "AnyPointer "
        "or Data for what varies.");
    return;
  }
  CheckData(name, "takes", method.getParamStructType(), method.getParamBrand());
  if (method.getResultStructType() == kStreamResult) {
    Add(name, "streams (-> stream).",
        "Every request of Hawser has its own response. Instead: return (), and let the client keep several "
        "calls in "
        "flight; the slots of the connection are the flow control.");
    return;
  }
  CheckData(name, "returns", method.getResultStructType(), method.getResultBrand());
}

void Refusals::CheckData(const std::string& name, const char* verb, uint64_t id,
                         capnp::schema::Brand::Reader brand) {
  std::optional<std::string> path = CapabilitySearch(nodes_).Find(id, brand);
  if (!path) return;
  Add(name, absl::StrCat(verb, " a capability, ", *path, "."),
      "Hawser carries data only. Instead: name the object by an id that later calls take; or, to call the "
      "client, let "
      "it offer a service of its own (ChannelOptions::services), which the server calls through "
      "ServerContext::peer().");
}

}  // namespace hawser::codegen
