package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

var (
	strict = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	claims = resourceclaim.NewStrategy(namespaces{}, authorizerfactory.NewAlwaysAllowAuthorizer())
)

func init() { capabilities.Setup(true, 0) } // as nearly every API server has it; without, no container may be privileged

// namespaces has every namespace, each with the label that admin access asks for.
type namespaces struct {
	corev1client.NamespaceInterface
}

func (namespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Namespace, error) {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"resource.kubernetes.io/admin-access": "true"}}}, nil
}

func judgeBuiltIn(asked question) (answer, error) {
	told := answer{Faults: []fault{}}
	object, kind, err := read(asked.Object, &told)
	if err != nil {
		return told, err
	}
	var old runtime.Object
	if asked.Old != nil {
		if old, _, err = read(asked.Old, &answer{}); err != nil {
			return told, fmt.Errorf("the old object: %w", err)
		}
	}
	found, err := decide(object, old, asked.Status)
	if err != nil {
		return told, err
	}
	told.Faults = faultsOf(found)
	told.Stored, err = legacyscheme.Scheme.ConvertToVersion(object, kind.GroupVersion())
	return told, err
}

// read is what happens to a request's body: parsed, unknown fields told and dropped, defaults filled in.
func read(text []byte, told *answer) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := strict.UniversalDeserializer().Decode(text, nil, nil)
	if strictly, ok := runtime.AsStrictDecodingError(err); ok {
		for _, unknown := range strictly.Errors() {
			told.Unknown = append(told.Unknown, unknown.Error())
		}
		object, kind, err = legacyscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	return internal, kind, err
}

func decide(object, old runtime.Object, status bool) (field.ErrorList, error) {
	switch object := object.(type) {
	case *resource.ResourceSlice:
		return stored(resourceslice.Strategy, resourceslice.Strategy, object, old)
	case *resource.DeviceClass:
		return stored(deviceclass.Strategy, deviceclass.Strategy, object, old)
	case *resource.ResourceClaimTemplate:
		templates := resourceclaimtemplate.NewStrategy(namespaces{})
		return stored(templates, templates, object, old)
	case *resource.ResourceClaim:
		if status {
			return stored(claims, resourceclaim.NewStatusStrategy(claims), object, old)
		}
		return stored(claims, claims, object, old)
	case *core.Pod:
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&object.Spec, nil, &object.ObjectMeta, nil)
		return corevalidation.ValidatePodCreate(object, options), nil
	case *apps.DaemonSet:
		return stored(daemonset.Strategy, daemonset.Strategy, object, old)
	case *apps.Deployment:
		return stored(deployment.Strategy, deployment.Strategy, object, old)
	case *batch.Job:
		return stored(job.Strategy, job.Strategy, object, old)
	}
	return nil, fmt.Errorf("no judge for %T", object)
}

// stored is what the registry does between request and storage.
func stored(create rest.RESTCreateStrategy, update rest.RESTUpdateStrategy, object, old runtime.Object) (field.ErrorList, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return nil, errors.New("the object has no metadata")
	}
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	ctx := genericapirequest.WithNamespace(context.Background(), accessor.GetNamespace())
	ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: "admin"})
	ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: kinds[0].Group, APIVersion: "v1", Verb: "create",
	})
	if old == nil {
		rest.FillObjectMetaSystemFields(accessor)
		if accessor.GetName() == "" && accessor.GetGenerateName() != "" {
			accessor.SetName(create.GenerateName(accessor.GetGenerateName()))
		}
		return causes(rest.BeforeCreate(create, ctx, object))
	}
	return causes(rest.BeforeUpdate(update, ctx, object, old))
}

// causes gives back the faults that a refusal was made of.
func causes(err error) (field.ErrorList, error) {
	var refused apierrors.APIStatus
	switch {
	case err == nil:
		return nil, nil
	case !errors.As(err, &refused) || !apierrors.IsInvalid(err):
		return nil, err
	}
	var found field.ErrorList
	for _, cause := range refused.Status().Details.Causes {
		found = append(found, &field.Error{Type: field.ErrorType(cause.Type), Field: cause.Field, Detail: cause.Message})
	}
	return found, nil
}
