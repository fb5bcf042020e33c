#ifndef HAWSER_CODEGEN_MODEL_H_
#define HAWSER_CODEGEN_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/codegen/nodes.h"

// What the emitters need to know about one schema file: names ready to be written, and every decision made.
namespace hawser::codegen {

struct MethodModel {
  std::string name;           // "Get"
  std::string descriptor;     // "kGet"
  std::string descriptor_of;  // "KeyValueStub": the class that has the descriptor.
  uint16_t ordinal = 0;
  std::string wire_name;  // "kv.capnp:KeyValue.get"
  bool idempotent = false;
  std::string params;  // "KeyValue::GetParams"
  std::string results;
  std::vector<std::string> comment;  // The schema's; lines.
  std::string text;                  // "get @0 (key :Text) -> (value :Data);"
};

struct InterfaceModel {
  // An interface that this one extends, directly or not.
  struct Base {
    std::string name;  // "Readable"
    std::string stub;  // "ReadableStub", with its namespace if that is another one.
    std::string service;
    bool direct = false;
    std::vector<MethodModel> methods;  // Those that this interface's stub has too.
    std::vector<std::string> hidden;   // Methods that it cannot have: another one has the same name.
  };

  uint64_t id = 0;
  std::string name;       // "Outer.KeyValue", as in the schema.
  std::string wire_name;  // "kv.capnp:Outer.KeyValue"
  std::string cpp_type;   // "Outer::KeyValue", with its namespace if that is another one.
  std::string stub;       // "Outer_KeyValueStub"
  std::string service;    // "Outer_KeyValueService"
  std::vector<std::string> comment;
  std::vector<MethodModel> methods;  // Its own, as ordered in the schema.
  std::vector<Base> bases;           // Each once, those that others extend first.
  std::vector<std::string>
      reveal;  // "ReadableService::Get": inherited handlers that one of its own would hide.
};

// An interface without stub and service, because Hawser cannot serve it, and the first reason.
struct LeftOutModel {
  std::string place;   // "kv.capnp:12", of the reason.
  std::string name;    // "Outer.KeyValue", as in the schema.
  std::string reason;  // "KeyValue.watch takes a capability, listener :Listener."
};

struct FileModel {
  uint64_t id = 0;
  std::string source;       // "kv.capnp", without folders.
  std::string output_base;  // "pkg/kv": the outputs are this + ".rpc.h" and ".rpc.c++".
  std::string cpp_namespace;
  std::vector<std::string>
      base_headers;  // "<pkg/base.rpc.h>" or "\"base.rpc.h\"", of the interfaces it extends.
  std::vector<InterfaceModel> interfaces;
  std::vector<LeftOutModel> left_out;
};

// What becomes of an interface that Hawser cannot serve: its file is refused, or it and those that extend it
// are left out.
enum class Unsupported { kRefuse, kLeaveOut };

// Understands one of the files that code is asked for. What cannot be generated is added to `refusals`, as
// messages, and the model is worth nothing then.
FileModel BuildModel(const Nodes& nodes, CodeGeneratorRequest::RequestedFile::Reader file,
                     Unsupported unsupported, std::vector<std::string>& refusals);

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_MODEL_H_
