package main

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var (
	extensions       = runtime.NewScheme()
	extensionsStrict = serializer.NewCodecFactory(extensions, serializer.EnableStrict)
)

func init() { install.Install(extensions) }

// judgeCustom judges the definition itself first, and the object by it when there is one.
func judgeCustom(asked question) (answer, error) {
	told := answer{Faults: []fault{}}
	read, _, err := extensionsStrict.UniversalDeserializer().Decode(asked.CRD, nil, nil)
	if err != nil {
		return told, err
	}
	extensions.Default(read)
	definition := &apiextensions.CustomResourceDefinition{}
	if err := extensions.Convert(read, definition, nil); err != nil {
		return told, err
	}
	// What the registry fills in before it validates.
	definition.Status.StoredVersions = []string{storageVersion(read)}
	found := crdvalidation.ValidateCustomResourceDefinition(context.Background(), definition)
	if len(found) > 0 || asked.Object == nil {
		told.Faults = faultsOf(found)
		return told, nil
	}
	err = judgeBySchema(asked.Object, read, &told)
	return told, err
}

func storageVersion(read runtime.Object) string {
	definition, ok := read.(*apiextensionsv1.CustomResourceDefinition)
	if ok {
		for _, version := range definition.Spec.Versions {
			if version.Storage {
				return version.Name
			}
		}
	}
	return ""
}

func judgeBySchema(text []byte, read runtime.Object, told *answer) error {
	definition, ok := read.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return errors.New("the definition is not of apiextensions.k8s.io/v1")
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	named := schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string))
	for _, version := range definition.Spec.Versions {
		if version.Name != named.Version {
			continue
		}
		internal := &apiextensions.CustomResourceValidation{}
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil); err != nil {
			return err
		}
		structural, err := structuralschema.NewStructural(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		told.Unknown = pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		defaulting.Default(object, structural)
		faults := validation.ValidateCustomResource(nil, object, validator)
		faults = append(faults, listtype.ValidateListSetsAndMaps(nil, structural, object)...)
		told.Faults = faultsOf(faults)
		told.Stored = object
		return nil
	}
	return errors.New("the definition has no version " + named.Version)
}
