#include <gtest/gtest.h>

#include "core/data/roff.h"

namespace weft::test {
namespace {

TEST(Roff, DropsFontsAndKeepsCharacters) {
  EXPECT_EQ(without_roff_escapes(R"(\fB\-\-all\fR and \f(CWcode\fP, \f[BI]x\f[])"),
            "--all and code, x");
  EXPECT_EQ(without_roff_escapes(R"(\(bu\ \(em \[aq]\[u20AC] \*(Aq\*(L"q\*(R")"), "• — '€ '\"q\"");
  EXPECT_EQ(without_roff_escapes(R"(\s-1SMALL\s0 \s+2x\s0 \s12y)"), "SMALL x y");
  EXPECT_EQ(without_roff_escapes(R"(a\&b\|c\h'2n'd\v'-1m'e \eo \\n)"), "abcde \\o \\n");
  EXPECT_EQ(without_roff_escapes(R"(text \" comment)"), "text ");
  EXPECT_EQ(without_roff_escapes(R"(\n(.g\nx\n[long]\n+y.)"), ".");
}

// Escapes of characters that have several bytes, as in translated pages.
TEST(Roff, DropsWholeCharacters) {
  EXPECT_EQ(without_roff_escapes("a\\\u0414b \\f\u0414c \\h\u0414x\u0414d \\(\u0414\u0414e"),
            "a\u0414b c d e");
  EXPECT_EQ(without_roff_escapes("\\h\u0414"), "");
}

TEST(Roff, SurvivesLinesThatEndInsideAnEscape) {
  for (const char* line :
       {"\\",    "\\f", "\\f(", "\\f[", "\\(", "\\(b", "\\[", "\\[bu", "\\h",   "\\h'",
        "\\h'x", "\\s", "\\s-", "\\s(", "\\*", "\\*(", "\\n", "\\n+",  "\\[u]", "\\[uzzzzz]"}) {
    without_roff_escapes(line);
    text_of_roff(std::string(".B ") + line);
    text_of_roff(std::string(".") + line);
  }
}

TEST(Roff, TurnsAManPageIntoText) {
  const char* page = R"(.\" Copyright
.TH LS 1 "May 2024"
.de Xx
never seen
..
.ie n \{\
.ds -- \(*W-
.\}
.el\{\
.ds -- \|\(em\|
'br\}
.SH NAME
ls \- list directory
contents
.SH "SEE ALSO"
.BR dir (1),
.B "two words"
.PP
A new paragraph
.br
and a new line.
.TP
\fB\-a\fR, \fB\-\-all\fR
do not ignore
.IP \(bu 2
a point
.SS
Next line heading
.nf
  keep   this
and this
.fi
filled
again
)";
  EXPECT_EQ(text_of_roff(page), R"(NAME
ls - list directory contents

SEE ALSO
dir(1), two words

A new paragraph
and a new line.

-a, --all
do not ignore

• a point

Next line heading
  keep   this
and this
filled again
)");
}

TEST(Roff, TurnsMdocIntoText) {
  const char* page = R"(.Dd May 1, 2024
.Dt CAT 1
.Os
.Sh NAME
.Nm cat
.Nd concatenate files
.Sh SYNOPSIS
.Nm
.Op Fl u
.Op Ar file ...
.Sh DESCRIPTION
The
.Nm
utility reads files, see
.Xr head 1 .
.Bl -tag
.It Fl n Ar count
Numbers (the
.Fl Ns Ar x
form).
.El
)";
  EXPECT_EQ(text_of_roff(page), R"(NAME
cat - concatenate files

SYNOPSIS
cat [-u] [file ...]

DESCRIPTION
The cat utility reads files, see head(1).

-n count Numbers (the -x form).
)");
}

TEST(Roff, KeepsTheWordsOfTablesAndDropsEquations) {
  EXPECT_EQ(
      text_of_roff(
          ".TS\ntab(\t);\nl l\nl l.\nName\tValue\n_\nT{\nlong\nT}\tx\n.TE\nafter\n.EQ\nx over "
          "y\n.EN\nend\n"),
      "Name Value\nlong\nx\nafter end\n");
}

}  // namespace
}  // namespace weft::test
