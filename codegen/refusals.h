#ifndef HAWSER_CODEGEN_REFUSALS_H_
#define HAWSER_CODEGEN_REFUSALS_H_

#include <string>
#include <vector>

#include "hawser/codegen/nodes.h"
#include "hawser/codegen/source_lines.h"

namespace hawser::codegen {

// What a schema asks for and Hawser cannot do, as messages for its author:
//   kv.capnp:12: error: KeyValue.watch takes a capability, listener :Listener.
//     Hawser carries data only. Instead: ...
class Refusals {
 public:
  // Of one schema file.
  Refusals(const Nodes& nodes, std::string path) : nodes_(nodes), path_(std::move(path)) {}

  // Everything about an interface and its methods that cannot be carried, wherever it is used.
  void Check(Node::Reader interface);

  // `declared` is what the message is about, "Outer.Inner" or "Outer.Inner.get". `line`: what has its line, as for
  // SourceLines::Find(), if that is something else.
  void Add(const std::string& declared, const std::string& what, const std::string& instead,
           const std::string& line = "");

  const std::vector<std::string>& messages() const { return messages_; }

 private:
  void CheckMethod(const std::string& name, capnp::schema::Method::Reader method);
  void CheckData(const std::string& name, const char* verb, uint64_t id, capnp::schema::Brand::Reader brand);

  const Nodes& nodes_;
  const std::string path_;
  std::optional<SourceLines> lines_;  // Read when there is something to say.
  std::vector<std::string> messages_;
};

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_REFUSALS_H_
