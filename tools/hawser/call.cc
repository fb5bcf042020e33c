#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "examples/kv/client/input_file.h"
#include "examples/kv/client/output_file.h"
#include "hawser/base/peer_text.h"
#include "hawser/rpc/dynamic_call.h"
#include "hawser/rpc/metadata.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/field_path.h"
#include "hawser/tools/hawser/json_fit.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/json_value.h"
#include "hawser/tools/hawser/reflection.h"
#include "hawser/tools/hawser/schema_text.h"

namespace hawser::tool {
namespace {

// At most one byte more than JSON may have.
absl::StatusOr<std::string> ReadStdin() {
  if (isatty(STDIN_FILENO))
    std::cerr << "hawser call: reading JSON from the terminal, to its end (Ctrl-D)" << std::endl;
  std::string text;
  char buffer[1 << 16];
  while (text.size() <= kJsonBytesMax) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot read JSON from stdin");
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// The struct that has the last field of `path`.
capnp::DynamicStruct::Builder Outer(capnp::DynamicStruct::Builder message, const FieldPath& path) {
  for (size_t i = 0; i + 1 < path.fields.size(); ++i) {
    const auto field = path.fields[i];
    const bool of_union = field.getProto().getDiscriminantValue() != capnp::schema::Field::NO_DISCRIMINANT;
    const bool chosen = !of_union || message.has(field, capnp::HasMode::NON_DEFAULT);
    message = (chosen ? message.get(field) : message.init(field)).as<capnp::DynamicStruct>();
  }
  return message;
}

absl::Status FillFromFile(const std::shared_ptr<Channel>& channel, const FieldPath& path, DynamicCall& call) {
  absl::StatusOr<kv::InputFile> file = kv::InputFile::Open(path.file);
  if (!file.ok()) return file.status();
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(std::max<size_t>(file->size_bytes(), 1));
  if (!buffer.ok()) return buffer.status();
  if (absl::Status status = file->ReadAll(buffer->data()); !status.ok()) return status;
  capnp::DynamicStruct::Builder outer = Outer(call.request(), path);
  if (!path.is_text()) {
    const auto owner = std::make_shared<Buffer>(*std::move(buffer));
    return call.Attach(outer, path.fields.back().getProto().getName(),
                       capnp::Data::Reader(owner->data(), file->size_bytes()), owner);
  }
  const absl::string_view text(reinterpret_cast<const char*>(buffer->data()), file->size_bytes());
  size_t bad;
  if (!IsUtf8(text, &bad)) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", bad, " is not UTF-8, and the field is Text"));
  }
  auto builder = outer.init(path.fields.back(), static_cast<uint32_t>(text.size())).as<capnp::Text>();
  std::copy(text.begin(), text.end(), builder.begin());
  return absl::OkStatus();
}

absl::Status WriteToFile(capnp::DynamicStruct::Reader message, const FieldPath& path) {
  for (size_t i = 0; i + 1 < path.fields.size(); ++i) {
    message = message.get(path.fields[i]).as<capnp::DynamicStruct>();
  }
  const capnp::DynamicValue::Reader value = message.get(path.fields.back());
  if (path.is_text()) {
    const auto text = value.as<capnp::Text>();
    return kv::WriteFile(path.file, reinterpret_cast<const uint8_t*>(text.begin()), text.size());
  }
  const auto data = value.as<capnp::Data>();
  return kv::WriteFile(path.file, data.begin(), data.size());
}

// `status`, with the flag that it is about.
absl::Status OfFlag(absl::string_view flag, absl::string_view text, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("--", flag, "=", text, ": ", absl::string_view(status.message())));
}

class CallCommand : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "call", "NAME.METHOD [JSON]", "calls a method, with JSON in and out",
        "NAME.METHOD is a method as `hawser list` has it, kv.capnp:KeyValue.get; the end of that is enough "
        "if nothing else ends with it: KeyValue.get. JSON is an object with the parameters; `-` or nothing "
        "reads it from stdin (a method without parameters needs none). The result is printed as JSON.\n"
        "\n"
        "JSON and Cap'n Proto:\n"
        "  structs, groups    an object; a field that is left out keeps its default, as does a null pointer\n"
        "  unions             one of the fields\n"
        "  integers           a whole number, such as 5, 5.0 or 1e3; others are refused, not rounded\n"
        "  Text               a string; {\"base64\": \"...\"} if it is not UTF-8\n"
        "  Data               a string, for its UTF-8 bytes, or {\"base64\": \"...\"} for any bytes. What "
        "is\n"
        "                     printed is a string if it is text, else base64; with --json always base64\n"
        "  Int64, UInt64      printed in quotes, as many programs round numbers; taken without, too\n"
        "  Float32, Float64   a number, \"NaN\", \"Infinity\" or \"-Infinity\"\n"
        "  enums              the name, or the number\n"
        "  Void               null\n"
        "\n"
        "FIELD of --in and --out names a Data or Text field, such as value or entry.picture; elements of "
        "lists cannot be named. A field with --out is not printed.\n"
        "\n"
        "With --json the result is one line. If the call fails, {\"error\": {\"code\", \"message\"}} is "
        "printed, and the exit status is 1.",
        "hawser call --target=tcp://kv1:7470 KeyValue.get '{\"key\": \"tow\"}'\n"
        "hawser call --target=tcp://kv1:7470 KeyValue.put '{\"key\": \"cat\"}' --in=value=cat.png\n"
        "hawser call --target=tcp://kv1:7470 KeyValue.get '{\"key\": \"cat\"}' --out=value=copy.png"};
    return kHelp;
  }

  void AddFlags(Flags& flags) override {
    flags.Texts("in", "FIELD=FILE", "the bytes of FILE become the field FIELD of the parameters", &in_);
    flags.Texts("out", "FIELD=FILE", "the field FIELD of the result goes into FILE", &out_);
    flags.Texts("metadata", "KEY=VALUE", "goes along with the call; may be given several times", &metadata_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    for (const std::string& pair : metadata_) {
      const std::vector<std::string> parts = absl::StrSplit(pair, absl::MaxSplits('=', 1));
      if (parts.size() != 2)
        return absl::InvalidArgumentError("--metadata needs KEY=VALUE, such as tenant=blue");
      sent_metadata_.Add(parts[0], parts[1]);
    }
    if (!sent_metadata_.status().ok()) return sent_metadata_.status();
    for (const auto& [flag, texts] : {std::pair("in", &in_), std::pair("out", &out_)}) {
      for (const std::string& text : *texts) {
        if (absl::Status status = FieldPath::CheckForm(text); !status.ok()) return OfFlag(flag, text, status);
      }
    }
    if (words.size() == 1) return TakeWords(words, {"NAME.METHOD"}, {&name_});
    absl::Status taken = TakeWords(words, {"NAME.METHOD", "JSON"}, {&name_, &json_});
    // An empty variable of a script: stdin may be a terminal, from which nothing comes.
    if (taken.ok() && json_.empty()) {
      return absl::InvalidArgumentError(
          "the JSON is empty; {} leaves every parameter at its default, - reads stdin");
    }
    return taken;
  }

  absl::StatusOr<int> Run(const Session& session) override {
    const auto schemas = Fetch(session);
    if (!schemas.ok()) return schemas.status();
    const auto channel = session.Connect();
    if (!channel.ok()) return channel.status();
    const auto method = (*schemas)->FindMethod(name_);
    if (!method.ok()) return method.status();

    // Everything that can be wrong is found before the call is sent.
    std::vector<FieldPath> in, out;
    if (absl::Status status = ParsePaths("in", in_, method->getParamType(), in); !status.ok()) return status;
    if (absl::Status status = ParsePaths("out", out_, method->getResultType(), out); !status.ok())
      return status;
    absl::StatusOr<DynamicCall> call =
        DynamicCall::Create(*channel, *method, {.timeout = session.timeout, .metadata = &sent_metadata_});
    if (!call.ok()) return call.status();
    if (absl::Status status = FillRequest(*channel, **schemas, *method, in, *call); !status.ok())
      return status;

    const auto reply = call->Send().Wait();
    if (!reply.ok()) {
      return absl::Status(reply.status().code(),
                          absl::StrCat(MethodOf(*method).name, ": ", reply.status().message()));
    }
    JsonTextOptions options = {.pretty = !session.json, .base64_always = session.json};
    for (const FieldPath& path : out) {
      absl::Status written;
      const absl::Status read = reply->Read([&](auto message) { written = WriteToFile(message, path); });
      if (!read.ok()) return read;
      if (!written.ok()) return OfFlag("out", absl::StrCat(path.path, "=", path.file), written);
      options.left_out.insert(path.path);
    }
    absl::StatusOr<std::string> text = std::string();
    const absl::Status read = reply->Read([&](auto message) { text = ToJson(message, options); });
    if (!read.ok()) return read;
    if (!text.ok()) return text.status();
    std::fwrite(text->data(), 1, text->size(), stdout);
    std::fputc('\n', stdout);
    return 0;
  }

 private:
  // On a connection of its own, because that of the call takes messages of any size.
  absl::StatusOr<std::unique_ptr<Schemas>> Fetch(const Session& session) const {
    const auto channel = session.Connect(ReflectionOptions());
    if (!channel.ok()) return channel.status();
    return FetchSchemas(*channel, absl::Now() + session.timeout, name_);
  }

  static absl::Status ParsePaths(absl::string_view flag, const std::vector<std::string>& texts,
                                 capnp::StructSchema schema, std::vector<FieldPath>& paths) {
    for (const std::string& text : texts) {
      absl::StatusOr<FieldPath> path = FieldPath::Parse(text, schema);
      if (!path.ok()) return OfFlag(flag, text, path.status());
      paths.push_back(*std::move(path));
    }
    return absl::OkStatus();
  }

  absl::Status FillRequest(const std::shared_ptr<Channel>& channel, const Schemas& schemas,
                           capnp::InterfaceSchema::Method method, const std::vector<FieldPath>& in,
                           DynamicCall& call) {
    const bool needs_json = method.getParamType().getFields().size() > 0 && in.empty();
    if (json_ == "-" || (json_.empty() && needs_json)) {
      absl::StatusOr<std::string> text = ReadStdin();
      if (!text.ok()) return text.status();
      json_ = *std::move(text);
      if (absl::StripAsciiWhitespace(json_).empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("no JSON for ", MethodOf(method).name,
                         " came on stdin; {} leaves every parameter at its default. ", "The method is ",
                         MethodText(schemas, method).substr(0, 1000)));
      }
    } else if (json_.empty()) {
      json_ = "{}";
    }
    if (absl::Status status = FillFromJson(json_, call.request()); !status.ok()) {
      const std::string takes = MethodText(schemas, method);
      return absl::InvalidArgumentError(absl::StrCat(
          "the JSON for ", MethodOf(method).name, ": ", status.message(),
          absl::EndsWith(status.message(), "?") ? "" : ".", " The method is ", takes.substr(0, 1000)));
    }
    for (const FieldPath& path : in) {
      if (absl::Status status = FillFromFile(channel, path, call); !status.ok()) {
        return OfFlag("in", absl::StrCat(path.path, "=", path.file), status);
      }
    }
    return absl::OkStatus();
  }

  std::string name_;
  std::string json_;
  std::vector<std::string> in_, out_, metadata_;
  Metadata sent_metadata_;
};

}  // namespace

std::unique_ptr<Command> NewCall() { return std::make_unique<CallCommand>(); }

}  // namespace hawser::tool
