// ncclParam...: the settings of this library by name, as a communicator made now would have them.
#include <charconv>
#include <cstring>
#include <map>

#include "base/settings/settings_table.h"
#include "comm.h"

/// A setting; its address is the handle.
struct ncclParamHandle {
  std::string key, value;
};

namespace tutti::nccl {
namespace {

/// By name. Read once: what is bound stays where it is. Null members: the environment is wrong.
std::map<std::string, ncclParamHandle, std::less<>>& parameters() {
  static std::map<std::string, ncclParamHandle, std::less<>> all = [] {
    std::map<std::string, ncclParamHandle, std::less<>> made;
    const auto settings = settings_of_environment();
    for (const SettingRow& row : setting_rows(settings ? *settings : Settings{})) {
      made.emplace(row.variable, ncclParamHandle{std::string(row.variable), row.value});
    }
    return made;
  }();
  return all;
}

const ncclParamHandle* find(const char* key) {
  const auto found = key != nullptr ? parameters().find(std::string_view(key)) : parameters().end();
  return found != parameters().end() ? &found->second : nullptr;
}

ncclResult_t unknown(const char* function, const char* key) {
  return bad_argument(nullptr, function,
                      "no setting is called '" + std::string(key != nullptr ? key : "NULL") + "'");
}

template <class T>
ncclResult_t get_number(const char* function, ncclParamHandle_t handle, T* out) {
  if (handle == nullptr || out == nullptr) return unknown(function, nullptr);
  const std::string& text = handle->value;
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) {
    return bad_argument(nullptr, function,
                        handle->key + " is '" + text + "', no number of this type");
  }
  *out = value;
  return ncclSuccess;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key) {
  const ncclParamHandle* found = find(key);
  if (found == nullptr || out == nullptr) return unknown(__func__, key);
  *out = const_cast<ncclParamHandle_t>(found);
  return ncclSuccess;
}

#define TUTTI_GET(suffix, type)                                            \
  ncclResult_t ncclParamGet##suffix(ncclParamHandle_t handle, type* out) { \
    return get_number(__func__, handle, out);                              \
  }
TUTTI_GET(I8, int8_t)
TUTTI_GET(I16, int16_t)
TUTTI_GET(I32, int32_t)
TUTTI_GET(I64, int64_t)
TUTTI_GET(U8, uint8_t)
TUTTI_GET(U16, uint16_t)
TUTTI_GET(U32, uint32_t)
TUTTI_GET(U64, uint64_t)
#undef TUTTI_GET

ncclResult_t ncclParamGetStr(ncclParamHandle_t handle, const char** out) {
  if (handle == nullptr || out == nullptr) return unknown(__func__, nullptr);
  *out = handle->value.c_str();
  return ncclSuccess;
}

ncclResult_t ncclParamGet(ncclParamHandle_t handle, void* out, int most, int* length) {
  if (handle == nullptr || out == nullptr || length == nullptr) return unknown(__func__, nullptr);
  const std::string& text = handle->value;
  if (most < 0 || text.size() > static_cast<std::size_t>(most)) {
    return bad_argument(nullptr, __func__,
                        handle->key + " takes " + std::to_string(text.size()) +
                            " bytes, there is room for " + std::to_string(most));
  }
  std::memcpy(out, text.data(), text.size());
  *length = static_cast<int>(text.size());
  return ncclSuccess;
}

ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* length) {
  const ncclParamHandle* found = find(key);
  if (found == nullptr || value == nullptr) return unknown(__func__, key);
  *value = found->value.c_str();
  if (length != nullptr) *length = static_cast<int>(found->value.size());
  return ncclSuccess;
}

ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* length) {
  if (table == nullptr || length == nullptr) return unknown(__func__, nullptr);
  static std::vector<const char*> keys = [] {
    std::vector<const char*> made;
    for (const auto& [key, parameter] : parameters()) made.push_back(key.c_str());
    return made;
  }();
  *table = keys.data();
  *length = static_cast<int>(keys.size());
  return ncclSuccess;
}

void ncclParamDumpAll() {
  for (const auto& [key, parameter] : parameters()) {
    std::fprintf(stderr, "%s=%s\n", key.c_str(), parameter.value.c_str());
  }
}
