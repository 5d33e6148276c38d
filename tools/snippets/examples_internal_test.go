package main

import (
	"fmt"
	"testing"
)

func TestCheckExamples(t *testing.T) {
	t.Parallel()
	const api = "package x\n\nFUNCTIONS\n\nfunc F()\n"
	fsys := files(map[string]string{
		"api/breakwater.txt":    "package breakwater\n\nTYPES\n",
		"api/good.txt":          api,
		"good/a_test.go":        "package good\n\nfunc ExampleF() {\n\t// Output:\n\t// 1\n}\n",
		"api/deep/silent.txt":   api,
		"deep/silent/a_test.go": "package silent\n\nfunc Example_whole() {\n\tprintln()\n\t// Output:\n}\n",
		"api/mute.txt":          api,
		"mute/a_test.go":        "package mute\n\nfunc ExampleF() {}\n\nfunc TestF() {\n\t// Output:\n}\n",
		"api/none.txt":          "package none\n\nTYPES\n\ntype T int\n",
		"none/a.go":             "package none\n\nfunc ExampleF() {\n\t// Output:\n}\n",
		"api/words.txt":         "package words\n\nIt holds no code.\n",
	})
	list, err := listFiles(fsys)
	if err != nil {
		t.Fatal(err)
	}
	got, err := checkExamples(fsys, list)
	if err != nil {
		t.Fatal(err)
	}
	const want = "[mute: the package has no example with an output none: the package has no example with an output]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
