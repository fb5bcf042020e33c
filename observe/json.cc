#include "hawser/observe/json.h"

#include <capnp/dynamic.h>
#include <capnp/schema.h>

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "hawser/base/json_writer.h"
#include "hawser/observe/html.h"

namespace hawser::observe {
namespace {

// Cap'n Proto's fields into JSON.
class Writer {
 public:
  // The fields of a struct that `wants` says yes to.
  template <typename Wants>
  void Fields(capnp::DynamicStruct::Reader from, const Wants& wants) {
    for (capnp::StructSchema::Field field : from.getSchema().getFields()) {
      if (!wants(View(field.getProto().getName())) || !from.has(field, capnp::HasMode::NON_NULL)) continue;
      json_.Name(View(field.getProto().getName()));
      Value(from.get(field), field.getType());
    }
  }

  void Numbers(const History::Curve& values) {
    json_.BeginLineList();
    for (const double value : values) json_.Raw(absl::StrFormat("%.10g", value));
    json_.EndList();
  }
  // An object of a list. No curve: it has only its name.
  void NamedCurve(absl::string_view name, const char* of, const History::Curve* curve) {
    json_.BeginObject();
    json_.Name("name").String(name);
    if (curve != nullptr) {
      json_.Name(of);
      Numbers(*curve);
    }
    json_.EndObject();
  }

  JsonWriter& json() { return json_; }
  std::string Text() && { return std::move(json_).Take(); }

 private:
  void Value(const capnp::DynamicValue::Reader& value, capnp::Type type) {
    switch (type.which()) {
      case capnp::schema::Type::BOOL:
        return json_.Bool(value.as<bool>());
      case capnp::schema::Type::INT64:
        return json_.Number64(value.as<int64_t>());
      case capnp::schema::Type::UINT64:
        return json_.Number64(value.as<uint64_t>());
      case capnp::schema::Type::INT8:
      case capnp::schema::Type::INT16:
      case capnp::schema::Type::INT32:
      case capnp::schema::Type::UINT8:
      case capnp::schema::Type::UINT16:
      case capnp::schema::Type::UINT32:
        return json_.Number(value.as<int64_t>());
      case capnp::schema::Type::FLOAT32:
      case capnp::schema::Type::FLOAT64:
        return json_.Raw(absl::StrFormat("%.17g", value.as<double>()));
      case capnp::schema::Type::TEXT:
        return json_.String(View(value.as<capnp::Text>()));
      case capnp::schema::Type::ENUM:
        return Enum(value.as<capnp::DynamicEnum>());
      case capnp::schema::Type::LIST:
        return List(value.as<capnp::DynamicList>(), type.asList().getElementType());
      case capnp::schema::Type::STRUCT:
        json_.BeginObject();
        Fields(value.as<capnp::DynamicStruct>(), [](absl::string_view) { return true; });
        return json_.EndObject();
      default:
        return json_.Null();  // A snapshot has nothing else.
    }
  }
  void Enum(capnp::DynamicEnum value) {
    KJ_IF_MAYBE (known, value.getEnumerant()) {
      json_.String(View(known->getProto().getName()));
    } else {
      json_.Number(value.getRaw());
    }
  }
  // Structs have a line each, or more; other values are on one line.
  void List(capnp::DynamicList::Reader list, capnp::Type type) {
    const bool has_lines = type.isStruct();
    has_lines ? json_.BeginList() : json_.BeginLineList();
    for (const capnp::DynamicValue::Reader value : list) Value(value, type);
    json_.EndList();
  }

  JsonWriter json_{JsonWriter::Layout::kLines};
};

// The curves of the history; with `has_parts` those of each poller and pool as well.
void Write(const History& history, wire::Snapshot::Reader snapshot, bool has_parts, Writer& out) {
  out.json().Name("history").BeginObject();
  History::Curve ages;
  for (int64_t time : history.times_unix_ns()) {
    ages.push_back(static_cast<double>(history.times_unix_ns().back() - time) / 1e9);
  }
  out.json().Name("ageSeconds");
  out.Numbers(ages);
  const std::pair<const char*, const History::Curve*> curves[] = {
      {"callsPerSecond", &history.calls_per_second()},
      {"callsRunning", &history.calls_running()},
      {"busyPollers", &history.busy()},
      {"leasedBytes", &history.leased_bytes()}};
  for (const auto& [name, curve] : curves) {
    out.json().Name(name);
    out.Numbers(*curve);
  }
  if (has_parts) {
    out.json().Name("pollers").BeginList();
    for (const auto poller : snapshot.getPollers()) {
      out.NamedCurve(View(poller.getName()), "busy", history.BusyOf(View(poller.getName())));
    }
    out.json().EndList();
    out.json().Name("pools").BeginList();
    for (const auto pool : snapshot.getPools()) {
      out.NamedCurve(View(pool.getName()), "leasedBytes", history.LeasedBytesOf(View(pool.getName())));
    }
    out.json().EndList();
  }
  out.json().EndObject();
}

}  // namespace

std::string JsonOf(wire::Snapshot::Reader snapshot) {
  Writer out;
  out.json().BeginObject();
  out.Fields(snapshot, [](absl::string_view) { return true; });
  out.json().EndObject();
  return std::move(out).Text() + "\n";
}

std::string JsonOf(wire::Snapshot::Reader snapshot, absl::Span<const absl::string_view> fields,
                   const History* history) {
  Writer out;
  out.json().BeginObject();
  out.Fields(snapshot, [&](absl::string_view name) { return absl::c_linear_search(fields, name); });
  if (history != nullptr) Write(*history, snapshot, absl::c_linear_search(fields, "pollers"), out);
  out.json().EndObject();
  return std::move(out).Text() + "\n";
}

}  // namespace hawser::observe
