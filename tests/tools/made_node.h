#ifndef HAWSER_TESTS_TOOLS_MADE_NODE_H_
#define HAWSER_TESTS_TOOLS_MADE_NODE_H_

#include <capnp/message.h>
#include <capnp/schema.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace hawser::tool {

inline constexpr uint64_t kId = 0x8000000000000001;

// One node of a schema, as a server that lies may make it.
class Made {
 public:
  using Node = capnp::schema::Node;

  explicit Made(uint64_t id, const std::string& name = "evil.capnp:Evil") : node_(message_.initRoot<Node>()) {
    node_.setId(id);
    node_.setDisplayName(name);
  }
  // A group of `scope`.
  static std::unique_ptr<Made> Group(uint64_t id, uint64_t scope) {
    auto made = std::make_unique<Made>(id, "evil.capnp:Evil.g");
    made->node_.setScopeId(scope);
    made->node_.initStruct().setIsGroup(true);
    return made;
  }

  Node::Builder* operator->() { return &node_; }
  Node::Reader reader() { return node_.asReader(); }

  // A struct with so many fields f0, f1, ... which are still to be made.
  capnp::List<capnp::schema::Field>::Builder Fields(uint32_t count) {
    auto fields = (node_.isStruct() ? node_.getStruct() : node_.initStruct()).initFields(count);
    for (uint32_t i = 0; i < count; ++i) {
      fields[i].setName(absl::StrCat("f", i));
      fields[i].setCodeOrder(static_cast<uint16_t>(i));
    }
    return fields;
  }
  // An interface with so many methods m0, m1, ... whose parameters and results are `params`.
  void Methods(uint32_t count, uint64_t params) {
    auto methods = node_.initInterface().initMethods(count);
    for (uint32_t i = 0; i < count; ++i) {
      methods[i].setName(absl::StrCat("m", i));
      methods[i].setCodeOrder(static_cast<uint16_t>(i));
      methods[i].setParamStructType(params);
      methods[i].setResultStructType(params);
    }
  }

 private:
  capnp::MallocMessageBuilder message_;
  Node::Builder node_;
};

inline void SetUint64(capnp::schema::Field::Builder field, uint32_t offset) {
  auto slot = field.initSlot();
  slot.setOffset(offset);
  slot.initType().setUint64();
  slot.initDefaultValue().setUint64(0);
}

inline void SetText(capnp::schema::Field::Builder field, uint32_t offset) {
  auto slot = field.initSlot();
  slot.setOffset(offset);
  slot.initType().setText();
  slot.initDefaultValue().setText("");
}

inline void SetStruct(capnp::schema::Field::Builder field, uint32_t offset, uint64_t type) {
  auto slot = field.initSlot();
  slot.setOffset(offset);
  slot.initType().initStruct().setTypeId(type);
  slot.initDefaultValue().initStruct();
}

inline void SetList(capnp::schema::Field::Builder field, uint32_t offset, uint64_t element_type) {
  auto slot = field.initSlot();
  slot.setOffset(offset);
  slot.initType().initList().initElementType().initStruct().setTypeId(element_type);
  slot.initDefaultValue().initList();
}

}  // namespace hawser::tool

#endif  // HAWSER_TESTS_TOOLS_MADE_NODE_H_
