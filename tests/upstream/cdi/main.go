// Cdi is the reference library's word on CDI files, asked by one line of JSON on standard input for each question:
//
//	{"text": "..."}                       the error that a file of this content has, if any
//	{"dir": "...", "inject": ["a/b=c"]}   errors by file of a directory, its devices, and what a container gets that asks for these
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type question struct {
	Text   *string  `json:"text"`
	Dir    string   `json:"dir"`
	Inject []string `json:"inject"`
}

type answer struct {
	Error      string              `json:"error"`
	Errors     map[string][]string `json:"errors"`
	Devices    []string            `json:"devices"`
	Unresolved []string            `json:"unresolved"`
	OCI        *oci.Spec           `json:"oci"`
}

func main() {
	scratch, err := os.MkdirTemp("", "lanewise-cdi-")
	if err == nil {
		err = serve(filepath.Join(scratch, "spec.json"))
		os.RemoveAll(scratch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(file string) error {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // end of input
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			return err
		}
		var told answer
		if asked.Text != nil {
			if err := os.WriteFile(file, []byte(*asked.Text), 0o600); err != nil {
				return err
			}
			if err := read(file); err != nil {
				told.Error = err.Error()
			}
		} else {
			told = inject(asked)
		}
		if err := answers.Encode(told); err != nil {
			return err
		}
	}
}

// read is what a runtime does with a file. The library falls over some, `"mounts":[null]` for one, and the runtime with it.
func read(file string) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	_, err = cdi.ReadSpec(file, 0)
	return err
}

func inject(asked question) answer {
	told := answer{Errors: map[string][]string{}, OCI: &oci.Spec{}}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(asked.Dir), cdi.WithAutoRefresh(false))
	if err != nil {
		told.Error = err.Error()
		return told
	}
	for path, errors := range cache.GetErrors() {
		for _, err := range errors {
			told.Errors[filepath.Base(path)] = append(told.Errors[filepath.Base(path)], err.Error())
		}
	}
	told.Devices = cache.ListDevices()
	told.Unresolved, err = cache.InjectDevices(told.OCI, asked.Inject...)
	if err != nil {
		told.Error = err.Error()
	}
	return told
}
