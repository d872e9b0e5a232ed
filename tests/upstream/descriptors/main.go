// Descriptors writes what k8s.io/kubelet says of the kubelet's services: a serialized FileDescriptorSet on standard output.
package main

import (
	"fmt"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	// One message of each file is enough to find the file. These files import no others.
	messages := []proto.Message{
		&drav1.Claim{}, &drav1beta1.Claim{}, &registration.PluginInfo{}, &healthv1.DeviceHealth{}, &healthv1alpha1.DeviceHealth{},
	}
	var set descriptorpb.FileDescriptorSet
	for _, message := range messages {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(message.ProtoReflect().Descriptor().ParentFile()))
	}
	written, err := proto.Marshal(&set)
	if err == nil {
		_, err = os.Stdout.Write(written)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
