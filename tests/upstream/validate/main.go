// Validate is what Kubernetes' API server says to an object, by the server's own code. A line of JSON on standard input is one question:
//
//	{"object": {...}}                               on create
//	{"object": {...}, "old": {...}}                 on update
//	{"object": {...}, "old": {...}, "status": true} on update of the status
//	{"object": {...}, "crd": {...}}                 on create of an object of this CustomResourceDefinition
//
// and one line on standard output its answer: the faults, the fields the server does not know, and what it would store.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

type question struct {
	Object json.RawMessage `json:"object"`
	Old    json.RawMessage `json:"old"`
	CRD    json.RawMessage `json:"crd"`
	Status bool            `json:"status"`
}

type fault struct {
	Field  string `json:"field"`
	Type   string `json:"type"`
	Detail string `json:"detail"`
}

type answer struct {
	// Why the object could not even be read.
	Unreadable string   `json:"unreadable"`
	Faults     []fault  `json:"faults"`
	Unknown    []string `json:"unknown"`
	Stored     any      `json:"stored"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // end of input
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fail(err)
		}
		judge := judgeBuiltIn
		if asked.CRD != nil {
			judge = judgeCustom
		}
		told, err := judge(asked)
		if err != nil {
			told = answer{Unreadable: err.Error()}
		}
		if err := answers.Encode(told); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func faultsOf(errors field.ErrorList) []fault {
	found := []fault{}
	for _, err := range errors {
		found = append(found, fault{err.Field, string(err.Type), err.Detail})
	}
	return found
}
