// File: base/json.h: JSON, read and written. nlohmann's headers cost a file some seconds of compile
// time, so only json.cc includes them.
//
// A Json is a value that owns its parts. Objects keep the order in which their members were added.
// Reading takes any bytes: a part that is missing or of another kind reads as null, 0 or empty
// text, and nothing throws but for want of memory. Values are made as they look in JSON:
//
//   Json rank{{"rank", 3}, {"calls", Json::array()}, {"host", {{"name", host}}}};
//   rank["calls"].push_back({{"call", 7}});
//   say("{}\n", rank.text({.indent = 2}));
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tutti {

/// It has more than 20 functions: for each kind of value one that makes it, one that asks for it
/// and one that reads it, and those of lists.
class Json {
 public:
  struct Member;
  /// How a value is written. What is not UTF-8 is replaced.
  struct Style {
    int indent = -1;      // Spaces a level; below 0: all in one line, without spaces.
    bool ascii = false;   // Other characters as \u and their number.
    bool sorted = false;  // Members by name.
  };
  /// Why a text is no JSON: the byte at which that is certain; or a number beyond all bounds.
  struct Fault {
    std::size_t byte = 0;
    bool number = false;
  };

  Json() noexcept;  // Null.
  Json(std::nullptr_t) noexcept;
  Json(std::same_as<bool> auto flag) noexcept : Json(Flag{flag}) {}
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) Json(Number number)
  noexcept : Json(whole(number)) {}
  Json(double number) noexcept;
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text) noexcept;
  Json(std::initializer_list<Member> members);
  Json(const std::vector<std::string>& list);
  Json(const std::vector<int>& list);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> list = {});
  static Json object();
  /// None if the text is no JSON, or nested more than 256 deep.
  static std::optional<Json> parse(std::string_view text, Fault* fault = nullptr);
  std::string text(Style style) const;
  std::string text() const;

  bool is_null() const;
  bool is_boolean() const;
  bool is_number() const;
  bool is_number_integer() const;
  bool is_number_unsigned() const;  // A whole number from 0 on.
  bool is_string() const;
  bool is_array() const;
  bool is_object() const;

  /// The value as a bool, number or std::string; false, 0 or "" if it is none. A number that
  /// `Value` can't hold is cut as static_cast does.
  template <class Value>
  Value get() const {
    if constexpr (std::same_as<Value, bool>) {
      return flag();
    } else if constexpr (std::integral<Value>) {
      return static_cast<Value>(bits());
    } else if constexpr (std::floating_point<Value>) {
      return static_cast<Value>(real());
    } else {
      return string();
    }
  }
  /// The member's value, or `otherwise` where there is none or it is of another kind.
  template <class Value>
  requires std::integral<Value> || std::floating_point<Value> Value value(std::string_view name,
                                                                          Value otherwise)
  const {
    const Json* found = find(name);
    const bool fits =
        found != nullptr && (std::same_as<Value, bool> ? found->is_boolean() : found->is_number());
    return fits ? found->get<Value>() : otherwise;
  }
  std::string value(std::string_view name, const char* otherwise) const;
  friend bool operator==(const Json& value, std::string_view text) { return value.is(text); }

  /// Elements of an array or members of an object.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  /// An object's member; null if there is none, and where this is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& operator[](std::string_view name) const;
  const Json& operator[](const char* name) const { return (*this)[std::string_view(name)]; }
  /// Makes an object of what is none, and adds the member if it is not there.
  Json& operator[](std::string_view name);
  Json& operator[](const char* name) { return (*this)[std::string_view(name)]; }
  const std::vector<Member>& members() const;  // None where this is no object.
  /// Sets all members of `other`.
  void update(const Json& other);

  /// An array's elements; none where this is no array.
  const Json* begin() const;
  const Json* end() const;
  Json* begin();
  Json* end();
  const Json& operator[](std::size_t index) const;
  const Json& operator[](int index) const { return (*this)[static_cast<std::size_t>(index)]; }
  /// Makes an array of what is none.
  void push_back(Json element);

 private:
  friend class JsonMaker;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;
  struct Flag {
    bool is;
  };
  struct Whole {
    std::uint64_t bits;
    bool below_zero;
  };
  template <std::integral Number>
  static Whole whole(Number number) noexcept {
    if constexpr (std::signed_integral<Number>) {
      return {static_cast<std::uint64_t>(static_cast<std::int64_t>(number)), number < 0};
    } else {
      return {number, false};
    }
  }
  explicit Json(Flag flag) noexcept;
  explicit Json(Whole whole) noexcept;
  bool flag() const;
  std::uint64_t bits() const;
  double real() const;
  std::string string() const;
  bool is(std::string_view text) const;

  // Whole numbers below 0 are signed ones, all others unsigned.
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

struct Json::Member {
  std::string name;
  Json value;
};

}  // namespace tutti
