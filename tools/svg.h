// File: tools/svg.h: the few words of SVG that the command's pictures are written in, and their
// colours.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace tutti::tools {

// Okabe and Ito: told apart by the colour-blind too.
inline constexpr std::array<const char*, 8> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#E69F00", "#56B4E9", "#6b4c9a", "#555555"};

/// For texts in XML.
std::string escaped(std::string_view text);
/// The head of a picture on white.
std::string svg_head(double width, double height);
/// A text; `anchor` is start, middle or end.
std::string text_at(double x, double y, const char* anchor, std::string_view text, int size = 12,
                    const char* fill = "#444");
/// 1, 2 or 5 times a power of ten, so that `high` takes about five of them.
double round_step(double high);

}  // namespace tutti::tools
