{{- /*
Fails if the namespace has another embedded service: of this release, whose logs would stay behind in a volume that
nobody names, or of another one, whose pods the Services of projects would select as well. Without a cluster, as in
`helm template`, nobody can know.
*/ -}}
{{- define "loghub.rejectOtherService" -}}
{{- $name := .Values.embeddedService.name -}}
{{- $namespace := include "loghub.embeddedServiceNamespace" . -}}
{{- range (lookup "apps/v1" "StatefulSet" $namespace "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if eq (get $labels "app.kubernetes.io/name") "loghub-service" -}}
{{- if ne (get $labels "app.kubernetes.io/instance") $.Release.Name -}}
{{- fail (printf "embeddedService: namespace %s has an embedded service already, the StatefulSet %s of release %s; choose another embeddedService.namespace" $namespace .metadata.name (get $labels "app.kubernetes.io/instance")) -}}
{{- else if ne .metadata.name $name -}}
{{- fail (printf "embeddedService.name: it is %s, and its logs are in the volume of that name. Another name would begin with an empty volume. To do so, delete the StatefulSet %s first; its claim data-%s-0 stays" .metadata.name .metadata.name .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /*
What the claim template says: as it is in the cluster, since Kubernetes lets nobody change it, or as the values say
where there is none. NOTES say how a claim is enlarged.
*/ -}}
{{- define "loghub.claimedStorage" -}}
{{- $storage := .Values.embeddedService.storage -}}
{{- $size := $storage.size -}}
{{- $class := $storage.className -}}
{{- $found := lookup "apps/v1" "StatefulSet" (include "loghub.embeddedServiceNamespace" .) .Values.embeddedService.name -}}
{{- range ($found.spec | default dict).volumeClaimTemplates -}}
{{- if eq .metadata.name "data" -}}
{{- $size = .spec.resources.requests.storage -}}
{{- $class = .spec.storageClassName | default "" -}}
{{- end -}}
{{- end -}}
size: {{ $size | quote }}
className: {{ $class | quote }}
{{- end -}}
