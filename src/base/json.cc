#include "base/json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMostDepth = 256;

const Json& nothing() {
  static const Json null;
  return null;
}

/// Writes one value. Scalars are nlohmann's: the shortest digits that read back as the same number.
class Writer {
 public:
  explicit Writer(Json::Style style) : style_(style) {}

  void write(const Json& value) {
    if (value.is_array()) return write_array(value);
    if (value.is_object()) return write_object(value);
    if (value.is_string()) return write_scalar(value.get<std::string>());
    if (value.is_boolean()) return write_scalar(value.get<bool>());
    if (value.is_number_unsigned()) return write_scalar(value.get<std::uint64_t>());
    if (value.is_number_integer()) return write_scalar(value.get<std::int64_t>());
    if (value.is_number()) return write_scalar(value.get<double>());
    out += "null";
  }

  std::string out;

 private:
  void write_scalar(const nlohmann::json& value) {
    out += value.dump(-1, ' ', style_.ascii, nlohmann::json::error_handler_t::replace);
  }

  void write_array(const Json& array) {
    if (array.empty()) {
      out += "[]";
      return;
    }
    open('[');
    bool first = true;
    for (const Json& element : array) {
      separate(std::exchange(first, false));
      write(element);
    }
    close(']');
  }

  void write_object(const Json& object) {
    std::vector<const Json::Member*> members;
    for (const Json::Member& member : object.members()) members.push_back(&member);
    if (members.empty()) {
      out += "{}";
      return;
    }
    if (style_.sorted) std::ranges::sort(members, {}, &Json::Member::name);
    open('{');
    bool first = true;
    for (const Json::Member* member : members) {
      separate(std::exchange(first, false));
      write_scalar(member->name);
      out += style_.indent >= 0 ? ": " : ":";
      write(member->value);
    }
    close('}');
  }

  void open(char bracket) {
    out += bracket;
    ++depth_;
  }
  void close(char bracket) {
    --depth_;
    break_line();
    out += bracket;
  }
  void separate(bool first) {
    if (!first) out += ',';
    break_line();
  }
  void break_line() {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(depth_ * static_cast<std::size_t>(style_.indent), ' ');
  }

  Json::Style style_;
  std::size_t depth_ = 0;
};

}  // namespace

/// What nlohmann's parser tells, made a value.
class JsonMaker {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;

  Json root;
  Json::Fault fault;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(number_integer_t value) { return put(value); }
  bool number_unsigned(number_unsigned_t value) { return put(value); }
  bool number_float(number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // Not in texts.
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    std::get<Json::Object>(open_.back()->value_).push_back({std::move(name), nullptr});
    return true;
  }
  bool end_object() {
    keep_last(std::get<Json::Object>(open_.back()->value_));
    open_.pop_back();
    return true;
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& why) {
    constexpr int kOutOfRange = 406;  // nlohmann's number of that error.
    fault = {position, why.id == kOutOfRange};
    return false;
  }

 private:
  bool open(Json container) {
    if (open_.size() == kMostDepth) return false;
    open_.push_back(&place(std::move(container)));
    return true;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  /// Where the value now is. Stays there while it is open: its neighbours come after it.
  Json& place(Json value) {
    if (open_.empty()) return root = std::move(value);
    if (auto* array = std::get_if<Json::Array>(&open_.back()->value_))
      return array->emplace_back(std::move(value));
    return std::get<Json::Object>(open_.back()->value_).back().value = std::move(value);
  }
  /// The last member of each name has its value, where the first was.
  static void keep_last(Json::Object& members) {
    std::map<std::string_view, std::size_t> first;
    std::vector<bool> repeats(members.size());
    bool any = false;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto [at, added] = first.emplace(members[i].name, i);
      if (added) continue;
      members[at->second].value = std::move(members[i].value);
      repeats[i] = any = true;
    }
    if (!any) return;
    Json::Object kept;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!repeats[i]) kept.push_back(std::move(members[i]));
    }
    members = std::move(kept);
  }

  std::vector<Json*> open_;
};

Json::Json() noexcept : value_(nullptr) {}
Json::Json(std::nullptr_t) noexcept : value_(nullptr) {}
Json::Json(Flag flag) noexcept : value_(flag.is) {}
Json::Json(Whole whole) noexcept : value_(whole.bits) {
  if (whole.below_zero) value_ = static_cast<std::int64_t>(whole.bits);
}
Json::Json(double number) noexcept : value_(number) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) noexcept : value_(std::move(text)) {}
Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}
Json::Json(const std::vector<std::string>& list) : value_(Array(list.begin(), list.end())) {}
Json::Json(const std::vector<int>& list) : value_(Array(list.begin(), list.end())) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json Json::array(std::initializer_list<Json> list) {
  Json made;
  made.value_ = Array(list);
  return made;
}

Json Json::object() {
  Json made;
  made.value_ = Object();
  return made;
}

std::optional<Json> Json::parse(std::string_view text, Fault* fault) {
  JsonMaker maker;
  const bool whole = nlohmann::json::sax_parse(text, &maker);
  if (fault != nullptr) *fault = maker.fault;
  if (!whole) return std::nullopt;
  return std::move(maker.root);
}

std::string Json::text(Style style) const {
  Writer writer(style);
  writer.write(*this);
  return std::move(writer.out);
}
std::string Json::text() const { return text(Style{}); }

bool Json::is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
bool Json::is_boolean() const { return std::holds_alternative<bool>(value_); }
bool Json::is_number() const {
  return is_number_integer() || std::holds_alternative<double>(value_);
}
bool Json::is_number_integer() const {
  return is_number_unsigned() || std::holds_alternative<std::int64_t>(value_);
}
bool Json::is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
bool Json::is_string() const { return std::holds_alternative<std::string>(value_); }
bool Json::is_array() const { return std::holds_alternative<Array>(value_); }
bool Json::is_object() const { return std::holds_alternative<Object>(value_); }

bool Json::flag() const {
  const auto* flag = std::get_if<bool>(&value_);
  return flag != nullptr && *flag;
}

std::uint64_t Json::bits() const {
  if (const auto* number = std::get_if<std::uint64_t>(&value_)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value_))
    return static_cast<std::uint64_t>(*number);
  const double number = real();
  if (number >= 0) return number < 0x1p64 ? static_cast<std::uint64_t>(number) : ~std::uint64_t{0};
  return number >= -0x1p63 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(number)) : 0;
}

double Json::real() const {
  if (const auto* number = std::get_if<double>(&value_)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*number);
  return 0;
}

std::string Json::string() const {
  const auto* text = std::get_if<std::string>(&value_);
  return text != nullptr ? *text : std::string();
}

bool Json::is(std::string_view text) const {
  const auto* own = std::get_if<std::string>(&value_);
  return own != nullptr && *own == text;
}

std::string Json::value(std::string_view name, const char* otherwise) const {
  const Json* found = find(name);
  return found != nullptr && found->is_string() ? found->string() : otherwise;
}

std::size_t Json::size() const {
  if (const auto* array = std::get_if<Array>(&value_)) return array->size();
  return members().size();
}

const std::vector<Json::Member>& Json::members() const {
  static const Object none;
  const auto* object = std::get_if<Object>(&value_);
  return object != nullptr ? *object : none;
}

const Json* Json::find(std::string_view name) const {
  const Object& all = members();
  const auto found = std::ranges::find(all, name, &Member::name);
  return found == all.end() ? nullptr : &found->value;
}

const Json& Json::operator[](std::string_view name) const {
  const Json* found = find(name);
  return found != nullptr ? *found : nothing();
}

Json& Json::operator[](std::string_view name) {
  if (!is_object()) value_ = Object();
  Object& all = std::get<Object>(value_);
  const auto found = std::ranges::find(all, name, &Member::name);
  if (found != all.end()) return found->value;
  all.push_back({std::string(name), nullptr});
  return all.back().value;
}

void Json::update(const Json& other) {
  for (const Member& member : other.members()) (*this)[member.name] = member.value;
}

const Json* Json::begin() const {
  const auto* array = std::get_if<Array>(&value_);
  return array != nullptr ? array->data() : nullptr;
}
const Json* Json::end() const { return begin() + (is_array() ? size() : 0); }
Json* Json::begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
Json* Json::end() { return const_cast<Json*>(std::as_const(*this).end()); }

const Json& Json::operator[](std::size_t index) const {
  return is_array() && index < size() ? begin()[index] : nothing();
}

void Json::push_back(Json element) {
  if (!is_array()) value_ = Array();
  std::get<Array>(value_).push_back(std::move(element));
}

}  // namespace tutti
