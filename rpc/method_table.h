#ifndef HAWSER_RPC_METHOD_TABLE_H_
#define HAWSER_RPC_METHOD_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/method.h"

namespace capnp {
class SchemaLoader;
}

namespace hawser {

class ServerContext;

// Finds the handler of a request by (interface id, ordinal). Filled before it is used, then only read.
class MethodTable {
 public:
  // Runs one call on `self`, which is the object that was given to Add(). See InvokeHandler().
  using Handler = absl::Status (*)(void* self, ServerContext& context);

  struct Entry {
    const Method* method = nullptr;
    void* self = nullptr;
    Handler handler = nullptr;
    uint32_t index = 0;  // Among all methods of the table, counted from 0.
    // A built-in one, which runs on the poller, so that clients get an answer also while the executor is
    // stuck. But on the executor if code of the application that belongs there runs before it
    // (ServerOptions::authorize, interceptors).
    bool on_poller = false;
  };

  // What reflection says of an interface (rpc/hawser/reflection.capnp).
  struct Interface {
    absl::string_view name;  // "kv.capnp:KeyValue". Static storage.
    // Loads the interface and what it refers to. nullptr: its methods were added without a schema.
    void (*load_schema)(capnp::SchemaLoader& loader) = nullptr;
    bool is_built_in = false;  // Errors that say what there is leave it out.
  };

  // `method` has static storage. Adding the same method of the same object again (an interface inherited on
  // two paths) has no effect.
  void Add(const Method& method, void* self, Handler handler);
  // Adds what `other` has. Returns null or, with nothing added, a method that two different objects
  // implement: one of `other` and one that was added before, or two of `other`.
  const Method* AddAll(const MethodTable& other);
  // Generated code calls it for each interface.
  void AddInterface(uint64_t id, const Interface& interface) { interfaces_[id] = interface; }
  // All that this table has is of a service of Hawser's own.
  void MarkBuiltIn(bool on_poller);

  // nullptr: this table has no such method. The entry stays where it is as long as nothing is added.
  const Entry* Find(uint64_t interface_id, uint16_t ordinal) const;

  // A method that two different objects implement; nullptr if there is none. The caller then refuses to
  // serve.
  const Method* conflict() const { return conflict_; }
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  // All of them, by index.
  std::vector<const Entry*> Entries() const;

  // Whether a method that is served here has `name`, compared by address. Linear in the methods.
  bool Names(const char* name) const;
  // "kv.capnp:KeyValue"; empty if the interface is unknown here.
  absl::string_view InterfaceName(uint64_t interface_id) const;
  // "kv.capnp:KeyValue, kv.capnp:Watch", sixteen at most, and how many more there are. Empty: there is none.
  std::string InterfaceNames() const;

  // All interfaces, by id.
  const absl::flat_hash_map<uint64_t, Interface>& interfaces() const { return interfaces_; }
  // The methods of one interface, by ordinal.
  std::vector<const Method*> MethodsOf(uint64_t interface_id) const;

 private:
  absl::flat_hash_map<std::pair<uint64_t, uint16_t>, Entry> entries_;
  absl::flat_hash_map<uint64_t, Interface> interfaces_;
  const Method* conflict_ = nullptr;
};

}  // namespace hawser

#endif  // HAWSER_RPC_METHOD_TABLE_H_
