// What upstream's structured allocator answers: one JSON question a line on standard input, one JSON answer a line.
//
// A question has "node", "slices", "classes", "claims" and "held" (devices as {"driver", "pool", "device"}), or
// "expression", "driver" and "device" for one CEL selector on one device. An answer has "allocations" (null where the
// claims cannot be met on this node), or "matches", or "error".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
)

type device struct {
	Driver string `json:"driver"`
	Pool   string `json:"pool"`
	Device string `json:"device"`
}

type question struct {
	Node    v1.Node                      `json:"node"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
	Held    []device                     `json:"held"`

	Expression string              `json:"expression"`
	Driver     string              `json:"driver"`
	Device     *resourceapi.Device `json:"device"`
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Matches     *bool                          `json:"matches,omitempty"`
	Error       string                         `json:"error,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

// What Kubernetes 1.37 has on by default (pkg/features/kube_features.go).
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

var (
	celFeatures = cel.Features{EnableConsumableCapacity: true}
	celCache    = cel.NewCache(1000, celFeatures)
)

func main() {
	// Nothing is logged: each log line would cost more than its question.
	ctx := klog.NewContext(context.Background(), klog.Logger{})
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) == 0 {
			return
		}
		if err := out.Encode(answered(ctx, line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err != nil {
			return
		}
	}
}

func answered(ctx context.Context, line []byte) answer {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return answer{Error: "unreadable question: " + err.Error()}
	}
	if q.Device != nil {
		return matched(ctx, q)
	}
	held := sets.New[structured.DeviceID]()
	for _, d := range q.Held {
		held.Insert(structured.MakeDeviceID(d.Driver, d.Pool, d.Device))
	}
	state := structured.AllocatedState{
		AllocatedDevices:         held,
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(ctx, features, state, classes(q.Classes), q.Slices, celCache)
	if err != nil {
		return answer{Error: err.Error()}
	}
	allocations, err := allocator.Allocate(ctx, &q.Node, q.Claims)
	if errors.Is(err, structured.ErrFailedAllocationOnNode) {
		return answer{}
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Allocations: allocations}
}

func matched(ctx context.Context, q question) answer {
	expression := celCache.GetOrCompile(q.Expression)
	if expression.Error != nil {
		return answer{Error: "compile: " + expression.Error.Error()}
	}
	matches, _, err := expression.DeviceMatches(ctx, cel.Device{
		Driver:                   q.Driver,
		AllowMultipleAllocations: q.Device.AllowMultipleAllocations,
		Attributes:               q.Device.Attributes,
		Capacity:                 q.Device.Capacity,
	})
	if err != nil {
		return answer{Error: "run: " + err.Error()}
	}
	return answer{Matches: &matches}
}
