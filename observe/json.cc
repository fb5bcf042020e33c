#include "hawser/observe/json.h"

#include <capnp/dynamic.h>
#include <capnp/schema.h>

#include <cstddef>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/peer_text.h"
#include "hawser/observe/html.h"

namespace hawser::observe {
namespace {

class Writer {
 public:
  std::string Text() && { return std::move(json_); }

  // The fields of a struct that `wants` says yes to.
  template <typename Wants>
  void Fields(capnp::DynamicStruct::Reader from, const Wants& wants) {
    for (capnp::StructSchema::Field field : from.getSchema().getFields()) {
      if (!wants(View(field.getProto().getName())) || !from.has(field, capnp::HasMode::NON_NULL)) continue;
      Name(View(field.getProto().getName()));
      Value(from.get(field), field.getType());
    }
  }

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginList() { Open('['); }
  void EndList() { Close(']'); }
  // Before each value of an object.
  void Name(absl::string_view name) {
    Next();
    absl::StrAppend(&json_, "\"", name, "\": ");
  }
  void Numbers(const History::Curve& values) {
    json_ += '[';
    for (size_t i = 0; i < values.size(); ++i) {
      absl::StrAppendFormat(&json_, "%s%.10g", i == 0 ? "" : ", ", values[i]);
    }
    json_ += ']';
  }
  // An object of a list. No curve: it has only its name.
  void NamedCurve(absl::string_view name, const char* of, const History::Curve* curve) {
    Next();
    BeginObject();
    Name("name");
    String(name);
    if (curve != nullptr) {
      Name(of);
      Numbers(*curve);
    }
    EndObject();
  }
  void String(absl::string_view text) {
    const std::string escaped = IsUtf8(text) ? std::string(text) : EscapePeerText(text);
    json_ += '"';
    for (char c : escaped) {
      if (c == '"' || c == '\\') {
        json_ += '\\';
        json_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        absl::StrAppendFormat(&json_, "\\u%04x", static_cast<unsigned>(c));
      } else {
        json_ += c;
      }
    }
    json_ += '"';
  }

 private:
  void Value(const capnp::DynamicValue::Reader& value, capnp::Type type) {
    switch (type.which()) {
      case capnp::schema::Type::BOOL:
        json_ += value.as<bool>() ? "true" : "false";
        break;
      case capnp::schema::Type::INT64:
        absl::StrAppend(&json_, "\"", value.as<int64_t>(), "\"");
        break;
      case capnp::schema::Type::UINT64:
        absl::StrAppend(&json_, "\"", value.as<uint64_t>(), "\"");
        break;
      case capnp::schema::Type::INT8:
      case capnp::schema::Type::INT16:
      case capnp::schema::Type::INT32:
      case capnp::schema::Type::UINT8:
      case capnp::schema::Type::UINT16:
      case capnp::schema::Type::UINT32:
        absl::StrAppend(&json_, value.as<int64_t>());
        break;
      case capnp::schema::Type::FLOAT32:
      case capnp::schema::Type::FLOAT64:
        absl::StrAppendFormat(&json_, "%.17g", value.as<double>());
        break;
      case capnp::schema::Type::TEXT:
        String(View(value.as<capnp::Text>()));
        break;
      case capnp::schema::Type::ENUM:
        Enum(value.as<capnp::DynamicEnum>());
        break;
      case capnp::schema::Type::LIST:
        List(value.as<capnp::DynamicList>(), type.asList().getElementType());
        break;
      case capnp::schema::Type::STRUCT:
        BeginObject();
        Fields(value.as<capnp::DynamicStruct>(), [](absl::string_view) { return true; });
        EndObject();
        break;
      default:
        json_ += "null";  // A snapshot has nothing else.
    }
  }
  void Enum(capnp::DynamicEnum value) {
    KJ_IF_MAYBE (known, value.getEnumerant()) {
      String(View(known->getProto().getName()));
    } else {
      absl::StrAppend(&json_, value.getRaw());
    }
  }
  // Structs have a line each, or more; other values are on one line.
  void List(capnp::DynamicList::Reader list, capnp::Type type) {
    const bool has_lines = type.isStruct();
    if (has_lines) {
      BeginList();
    } else {
      json_ += '[';
    }
    for (unsigned i = 0; i < list.size(); ++i) {
      if (has_lines) {
        Next();
      } else if (i != 0) {
        json_ += ", ";
      }
      Value(list[i], type);
    }
    if (has_lines) {
      EndList();
    } else {
      json_ += ']';
    }
  }

  void Open(char bracket) {
    json_ += bracket;
    ++depth_;
    is_first_ = true;
  }
  void Close(char bracket) {
    --depth_;
    if (!is_first_) NewLine();
    json_ += bracket;
    is_first_ = false;
  }
  void Next() {
    if (!is_first_) json_ += ',';
    is_first_ = false;
    NewLine();
  }
  void NewLine() {
    json_ += '\n';
    json_.append(2 * depth_, ' ');
  }

  std::string json_;
  size_t depth_ = 0;
  bool is_first_ = true;  // Nothing is in the innermost object or list yet.
};

// The curves of the history; with `has_parts` those of each poller and pool as well.
void Write(const History& history, wire::Snapshot::Reader snapshot, bool has_parts, Writer& out) {
  out.Name("history");
  out.BeginObject();
  History::Curve ages;
  for (int64_t time : history.times_unix_ns()) {
    ages.push_back(static_cast<double>(history.times_unix_ns().back() - time) / 1e9);
  }
  out.Name("ageSeconds");
  out.Numbers(ages);
  const std::pair<const char*, const History::Curve*> curves[] = {
      {"callsPerSecond", &history.calls_per_second()},
      {"callsRunning", &history.calls_running()},
      {"busyPollers", &history.busy()},
      {"leasedBytes", &history.leased_bytes()}};
  for (const auto& [name, curve] : curves) {
    out.Name(name);
    out.Numbers(*curve);
  }
  if (has_parts) {
    out.Name("pollers");
    out.BeginList();
    for (const auto poller : snapshot.getPollers()) {
      out.NamedCurve(View(poller.getName()), "busy", history.BusyOf(View(poller.getName())));
    }
    out.EndList();
    out.Name("pools");
    out.BeginList();
    for (const auto pool : snapshot.getPools()) {
      out.NamedCurve(View(pool.getName()), "leasedBytes", history.LeasedBytesOf(View(pool.getName())));
    }
    out.EndList();
  }
  out.EndObject();
}

}  // namespace

std::string JsonOf(wire::Snapshot::Reader snapshot) {
  Writer out;
  out.BeginObject();
  out.Fields(snapshot, [](absl::string_view) { return true; });
  out.EndObject();
  return std::move(out).Text() + "\n";
}

std::string JsonOf(wire::Snapshot::Reader snapshot, absl::Span<const absl::string_view> fields,
                   const History* history) {
  Writer out;
  out.BeginObject();
  out.Fields(snapshot, [&](absl::string_view name) { return absl::c_linear_search(fields, name); });
  if (history != nullptr) Write(*history, snapshot, absl::c_linear_search(fields, "pollers"), out);
  out.EndObject();
  return std::move(out).Text() + "\n";
}

}  // namespace hawser::observe
