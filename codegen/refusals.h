#ifndef HAWSER_CODEGEN_REFUSALS_H_
#define HAWSER_CODEGEN_REFUSALS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hawser/codegen/nodes.h"
#include "hawser/codegen/source_lines.h"

namespace hawser::codegen {

// One thing that a schema asks for and Hawser, or C++, cannot do.
struct Refusal {
  uint64_t interface =
      0;  // The id of the interface that cannot be served because of it; 0: the file cannot be used.
  std::string place;     // "kv.capnp:12"
  std::string declared;  // "KeyValue.watch"
  std::string what;      // "takes a capability, listener :Listener."
  std::string instead;   // "Hawser carries data only. Instead: ..."
};

// As a message for the author of the schema:
//   kv.capnp:12: error: KeyValue.watch takes a capability, listener :Listener.
//     Hawser carries data only. Instead: ...
std::string Message(const Refusal& refusal);

// Collects the refusals of one schema file.
class Refusals {
 public:
  Refusals(const Nodes& nodes, std::string path) : nodes_(nodes), path_(std::move(path)) {}

  // What Add() is told from now on concerns the interface with this id; 0, as at first: the whole file.
  void About(uint64_t interface) { about_ = interface; }

  // Everything about an interface and its methods that cannot be carried, wherever it is used.
  void Check(Node::Reader interface);

  // `declared` is what the message is about, "Outer.Inner" or "Outer.Inner.get". `line`: what has its line,
  // as for SourceLines::Find(), if that is something else.
  void Add(const std::string& declared, const std::string& what, const std::string& instead,
           const std::string& line = "");

  const std::vector<Refusal>& all() const { return all_; }

  // Takes those out that concern one interface each.
  std::vector<Refusal> TakeThoseOfInterfaces();

 private:
  void CheckMethod(const std::string& name, capnp::schema::Method::Reader method);
  void CheckData(const std::string& name, const char* verb, uint64_t id, capnp::schema::Brand::Reader brand);

  const Nodes& nodes_;
  const std::string path_;
  std::optional<SourceLines> lines_;  // Read when there is something to say.
  uint64_t about_ = 0;
  std::vector<Refusal> all_;
};

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_REFUSALS_H_
