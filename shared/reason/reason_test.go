package reason

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

func TestEveryRowCanBeActedOn(t *testing.T) {
	seen := map[Code]bool{}
	for _, row := range All() {
		if seen[row.Code] {
			t.Errorf("%s stands twice in the table", row.Code)
		}
		seen[row.Code] = true
		if row.Means == "" || row.Hint == "" {
			t.Errorf("%s lacks its sentence or its hint", row.Code)
		}
		if strings.HasSuffix(row.Means, ".") || strings.HasSuffix(row.Hint, ".") {
			t.Errorf("%s: no full stop at the end", row.Code)
		}
		switch row.Exit {
		case ExitUsage, ExitSystem, ExitNoBox:
		default:
			t.Errorf("%s: exit status %d is not one of ours", row.Code, row.Exit)
		}
	}
}

func TestPrintGivesWhatHintAndCode(t *testing.T) {
	cause := New(NoBwrap, "look for bwrap: %w", fs.ErrNotExist)
	err := fmt.Errorf("start the box: %w", cause)
	var out strings.Builder
	Print(&out, "botbox", err)
	want := "botbox: start the box: look for bwrap: file does not exist\n" +
		"hint: install it: apt-get install bubblewrap\n" +
		"reason: no-bwrap\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	if Exit(err) != ExitNoBox || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("exit %d, cause kept %v", Exit(err), errors.Is(err, fs.ErrNotExist))
	}
}

func TestAnErrorWithoutACodeIsInternal(t *testing.T) {
	if got := Of(errors.New("odd")).Code; got != Internal {
		t.Errorf("code %s", got)
	}
}

func TestUnknownCodePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_ = New("nobody-knows", "x")
}
