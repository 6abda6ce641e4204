{{- /*
Permissions of the operator in a namespace that it watches. A test compares them with those in
deploy/loghub-operator.yaml.
*/ -}}
{{- define "loghub.rules" -}}
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups]
  verbs: [get, list, watch, patch]
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups/status]
  verbs: [patch]
# Required to set blockOwnerDeletion where the API server enforces OwnerReferencesPermissionEnforcement.
- apiGroups: [loghub.dev]
  resources: [loghubconsumergroups/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# The operator reads and watches pods for their failures, annotates them to drain, and deletes them to
# restart them.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, delete]
# The workers' ServiceAccount has no permissions, and no token is mounted into the pods, unless workers make
# executors as pods.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
# The operator lists its own ConfigMaps to delete outdated worker settings, and reads a ConfigMap with
# a pipeline's code by name.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
# The operator gets Secrets by name and never lists or watches them.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
  {{- with .Values.rbac.secretNames }}
  resourceNames: {{- toYaml . | nindent 4 }}
  {{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, list, create, patch]
# The Lease by which the operators of a cluster see which one manages the objects of a namespace. RBAC cannot
# restrict `create` to a name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [loghub-consumer-groups]
  verbs: [get, patch]
{{- end -}}

{{- /* The projects' Services in the namespace of the embedded service. */ -}}
{{- define "loghub.projectRules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, delete]
{{- end -}}

{{- /* RBAC cannot restrict `create` to a name, hence a Role in the operator's own namespace. */ -}}
{{- define "loghub.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "loghub.fullname" . }}]
  verbs: [get, patch]
{{- if .Values.watchNamespaces }}
# The leader labels its own pod, so that Services select it. With a ClusterRole it already has permission.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, patch]
{{- end }}
{{- end -}}

{{- /* Additional permissions for external.metrics.k8s.io; cluster-wide, as is the API. */ -}}
{{- define "loghub.externalMetricsRules" -}}
# Authorize the clients of the API.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- if not .Values.externalMetrics.certificateSecret }}
# Write the certificate, which the operator creates at each start.
- apiGroups: [apiregistration.k8s.io]
  resources: [apiservices]
  resourceNames: [v1beta1.external.metrics.k8s.io]
  verbs: [get, patch]
{{- end }}
{{- end -}}

{{- /* The rights of a worker that makes its executors as pods, in its own namespace. */ -}}
{{- define "loghub.executorRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end -}}

{{- /*
What the operator needs to give them to the workers of a group. The API server refuses RoleBindings of other roles,
and it may delete none.
*/ -}}
{{- define "loghub.bindRules" -}}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings]
  verbs: [get, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [{{ .resource }}]
  resourceNames: [{{ .name }}]
  verbs: [bind]
{{- end -}}

{{- /* A role without a binding. As `loghub.role`. */ -}}
{{- define "loghub.unboundRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "loghub.labels" .root | nindent 4 }}
rules: {{- .rules | nindent 2 }}
{{- end -}}

{{- /*
A role and its binding to the operator. Takes {root: ., kind: Role|ClusterRole, name: ...,
namespace: ... (Role only), rules: text}.
*/ -}}
{{- define "loghub.role" -}}
{{ include "loghub.unboundRole" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels: {{- include "loghub.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "loghub.serviceAccount" .root | quote }}
    namespace: {{ include "loghub.namespace" .root | quote }}
{{- end -}}
